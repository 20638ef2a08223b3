package diff

func configDifferences() []known {
	return []known{
		{key: 32, step: "a broker", path: "*", why: "The settings of a node are those of configuration.md."},
		{key: 32, step: "some of a broker's", path: "*[\"node.id\"].ConfigSynonyms[*]", kafka: absent, why: "node.id has a default here."},
		{key: 32, step: "some of a broker's", path: "*[\"num.partitions\"].ReadOnly", kafka: "true", kagami: "false", why: "num.partitions and default.replication.factor can be changed at run time here."},
		{key: 32, step: "the default of all brokers", path: "*[\"min.insync.replicas\"]", kagami: absent, why: "Kafka sets it for the whole cluster when it turns eligible leader replicas on (KIP-966); there are none here."},
		{key: 32, path: "*[\"min.insync.replicas\"]*", why: "Kafka sets it for the whole cluster when it turns eligible leader replicas on (KIP-966); there are none here."},
		{key: 32, path: "*.Configs[\"mirror.*\"]", kafka: absent, why: "Configs of cluster mirroring (KIP-1279)."},
		{key: 32, path: "*.Configs[\"flush.ms\"]*", why: "Data is synced once a second here, see durability."},
		{key: 32, path: "*.ErrorMessage", kafka: "empty", kagami: "a text", why: "Texts say what is wrong where Kafka sends a code alone."},

		{key: 32, step: "loggers", path: "*", why: "A node has one logger, root, whose level is that of its log; Kafka has those of Log4j."},
		{key: 32, step: "*a group", path: "Resources[*].Configs[\"share.*", kagami: absent, why: "Share groups (KIP-932) aren't served."},
		{key: 32, step: "*a group", path: "Resources[*].Configs[\"errors.deadletterqueue.*", kagami: absent, why: "Share groups (KIP-932) aren't served."},
		{key: 32, step: "*a group", path: "Resources[*].Configs[\"streams.*", kagami: absent, why: "Streams groups (KIP-1071) aren't served."},
		{key: 44, step: "client metrics, *", path: "*.ErrorCode", kafka: "42 INVALID_REQUEST", kagami: "40 INVALID_CONFIG", why: "INVALID_CONFIG as for topics and groups."},
		{key: 49, step: "entity type twice", path: "*", why: "Kafka takes the last of two names; nobody can mean that."},
		{key: 48, path: "Entries[\"b\" \"user\"]", kagami: absent, why: "Kafka takes the last of two names (above)."},
		{key: 43, step: "all partitions", path: "Topics[*]*", kagami: absent, seldom: true, why: "Topics that the broker has beside those of the test."},
		{key: 57, path: "Results[*].ErrorMessage", kafka: "a text", kagami: "null", why: "A success has no text."},

		{key: 44, step: "unknown operation", path: "*.ErrorCode", kafka: "-1 UNKNOWN_SERVER_ERROR", kagami: "42 INVALID_REQUEST", why: "Kafka fails with UNKNOWN_SERVER_ERROR."},
		{key: 44, step: "read-only broker config", path: "*.ErrorCode", kafka: "42 INVALID_REQUEST", kagami: "40 INVALID_CONFIG", why: "INVALID_CONFIG for the settings of nodes as for those of topics."},
		{key: 44, step: "bad broker value", path: "*.ErrorCode", kafka: "42 INVALID_REQUEST", kagami: "40 INVALID_CONFIG", why: "INVALID_CONFIG for the settings of nodes as for those of topics."},
		{key: 44, step: "per-broker config for all", path: "*.ErrorCode", kafka: "42 INVALID_REQUEST", kagami: "40 INVALID_CONFIG", why: "INVALID_CONFIG for the settings of nodes as for those of topics."},
		{key: 44, step: "unknown broker config", path: "*", kafka: "0", kagami: "40 INVALID_CONFIG", why: "Kafka stores any name, for plugins; there are none here, and a misspelt name would do nothing."},
	}
}
