package diff

func groupDifferences() []known {
	return []known{
		{key: 10, step: "of a*", path: "ErrorMessage", kafka: "a text", kagami: "empty", why: "A success has no text."},
		{key: 32, step: "*a group", path: "Resources[*].Configs[\"consumer.assignor.offload.enable\"]", kagami: absent, why: "Assignments are made when they are due."},
	}
}
