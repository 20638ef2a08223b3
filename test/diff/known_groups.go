package diff

func groupDifferences() []known {
	return []known{
		{key: 10, step: "of a*", path: "ErrorMessage", kafka: "a text", kagami: "empty", why: "A success has no text."},
		{key: 10, step: "malformed: many elements", path: "*", why: "A list that is null where it may not be counts as empty; Kafka closes the connection."},
		{key: 32, step: "*a group", path: "Resources[*].Configs[\"consumer.assignor.offload.enable\"]", kagami: absent, why: "Assignments are made when they are due."},
	}
}
