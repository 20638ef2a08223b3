package diff

// everywhere are differences of many requests.
func everywhere() []known {
	return []known{
		{key: anyKey, path: "*ErrorMessage", kafka: "null", kagami: "a text", why: "Texts say what is wrong where Kafka sends a code alone."},
		{key: anyKey, path: "*ErrorMessage", kafka: "empty", kagami: "null", why: "A success has no text."},
	}
}

func topicDifferences() []known {
	return []known{
		{key: 19, step: "validate only", path: "*.TopicID", kafka: "some id", kagami: "none", why: "Nothing was created, so nothing has an id; Kafka tells a random one."},
		{key: 19, step: "names that collide as metrics", path: "*", why: "Kafka looks for names that collide in `.` and `_` among topics that are there; here those of one request are compared, too."},
		{key: 19, path: "*.Configs[\"mirror.*\"]", kafka: absent, why: "Configs of cluster mirroring (KIP-1279)."},
		{key: 19, path: "*.Configs[\"flush.ms\"].Value", why: "Data is synced once a second here, see durability."},
		{key: 19, path: "*.Configs[\"min.insync.replicas\"].Source", kafka: "3", kagami: "5", why: "Kafka sets it for the whole cluster when it turns eligible leader replicas on (KIP-966); there are none here."},
		{key: 75, path: "*.AuthorizedOperations", kafka: "3576", kagami: "-2147483648", why: "Nobody has rights on a topic that isn't there."},
		{key: 3, step: "null name without id", path: "*", why: "A topic without name and id fails alone; Kafka fails the whole request."},
	}
}

func produceDifferences() []known {
	return []known{
		{key: 0, step: "null records", path: "*", why: "Kafka never answers; here the partition is refused."},
		{key: 0, step: "bytes behind", path: "*", why: "Kafka drops what follows the last whole batch in silence, and it may be a batch that was cut off; here the request is refused."},
		{key: 0, step: "unknown codec", path: "*", why: "Kafka fails with UNKNOWN_SERVER_ERROR."},
		{key: 0, step: "says gzip and isn't", path: "*.ErrorCode", kafka: "-1 UNKNOWN_SERVER_ERROR", kagami: "2 CORRUPT_MESSAGE", why: "A batch that can't be opened is damaged; Kafka fails with UNKNOWN_SERVER_ERROR."},
		{key: 0, step: "a partition twice", path: "*", why: "Both batches are stored and both answered; of two for one partition Kafka stores the last."},
		{key: 0, step: "old version", path: "*", why: "Versions below 3 get an error per partition; Kafka, which advertises them as well, closes the connection."},
		{key: 22, step: "id without epoch", path: "*", seldom: true, why: "Half an identity counts as none."},
		{key: 22, step: "epoch without id", path: "*", seldom: true, why: "Half an identity counts as none."},
	}
}

func fetchDifferences() []known {
	return []known{
		{key: 1, step: "unknown isolation", path: "*", why: "An unknown isolation level reads uncommitted; Kafka fails with UNKNOWN_SERVER_ERROR."},
		{key: 1, step: "diverged epoch", path: "*", why: "An epoch above all of the log's is answered with the log's newest and its end, so that the client can cut: the leader epoch of a mirror topic is above those of its batches until it is stopped."},
		{key: 1, step: "as a replica by its state", path: "Brokers[*]", kafka: absent, why: "Who is told another leader is told its address."},
		{key: 23, step: "an epoch to come", path: "*", why: "An epoch above all of the log's is answered with the log's newest and its end, as in Fetch."},
		{key: 2, step: "latest of an empty partition", path: "*.LeaderEpoch", kafka: "0", kagami: "-1", why: "The epoch comes from stored batches; there is none yet."},
	}
}
