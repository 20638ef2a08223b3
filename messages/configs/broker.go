package configs

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"kagami/messages"
)

// Keys of nodes that other parts of this module name.
const (
	NodeIDConfig             = "node.id"
	NumPartitions            = "num.partitions"
	DefaultReplicationFactor = "default.replication.factor"
	ReplicaLagMax            = "replica.lag.time.max.ms"

	QueuedRequestBytes = "queued.max.request.bytes"
	QueuedAnswerBytes  = "kagami.queued.max.answer.bytes"

	QuotaWindowNum  = "quota.window.num"
	QuotaWindowSize = "quota.window.size.seconds"

	MirrorStateTopicPartitions = "mirror.state.topic.num.partitions"
	MirrorStateTopicRF         = "mirror.state.topic.replication.factor"
	MirrorStateAuditRetention  = "mirror.state.audit.retention.ms"
	MirrorNumReplicaFetchers   = "mirror.num.replica.fetchers"
	MirrorRefreshInterval      = "mirror.metadata.refresh.interval.ms"
	MirrorFetchBackoff         = "mirror.fetch.backoff.ms"
	MirrorFailedRetryInitial   = "mirror.failed.retry.initial.backoff.ms"
	MirrorFailedRetryMax       = "mirror.failed.retry.max.backoff.ms"
	MirrorFailedRetryAttempts  = "mirror.failed.retry.max.attempts"
	MirrorThrottledRate        = "mirror.replication.throttled.rate"

	ReplicaFetchWaitMax          = "replica.fetch.wait.max.ms"
	ReplicaFetchMinBytes         = "replica.fetch.min.bytes"
	ReplicaFetchResponseMaxBytes = "replica.fetch.response.max.bytes"
	ReplicaFetchMaxBytes         = "replica.fetch.max.bytes"
	ReplicaSocketTimeout         = "replica.socket.timeout.ms"
	ReplicaSocketReceiveBuffer   = "replica.socket.receive.buffer.bytes"

	MetadataSnapshotBytes = "metadata.log.max.record.bytes.between.snapshots"

	ClusterPeers          = "cluster.peers"
	ClusterListen         = "cluster.listen"
	ClusterAdvertised     = "cluster.advertised.listen"
	ClusterID             = "cluster.id"
	ClusterUser           = "cluster.user"
	ClusterPassword       = "cluster.password"
	ClusterTLSCertificate = "cluster.tls.certificate.file"
	ClusterTLSKey         = "cluster.tls.key.file"
	ClusterTLSCA          = "cluster.tls.ca.file"
	ClusterAllowClear     = "cluster.allow.clear"
	NATSURL               = "nats.url"
	NATSUser              = "nats.user"
	NATSPassword          = "nats.password"
	NATSToken             = "nats.token"
	NATSCredentials       = "nats.credentials.file"
	NATSTLSCertificate    = "nats.tls.certificate.file"
	NATSTLSKey            = "nats.tls.key.file"
	NATSTLSCA             = "nats.tls.ca.file"
	NATSReplicas          = "nats.journal.replicas"
	ClusterBeatMs         = "kagami.cluster.heartbeat.interval.ms"
	ClusterDeadMs         = "kagami.cluster.node.timeout.ms"
	JournalSyncMs         = "kagami.journal.sync.interval.ms"
	JournalBytes          = "kagami.journal.max.bytes"
	JournalCheckpointMs   = "kagami.journal.checkpoint.interval.ms"
	JournalElectionMs     = "kagami.journal.election.timeout.ms"

	CleanerEnable   = "log.cleaner.enable"
	CleanerBackoff  = "log.cleaner.backoff.ms"
	CleanerMapBytes = "log.cleaner.dedupe.buffer.size"
	CleanerRate     = "log.cleaner.io.max.bytes.per.second"

	FetchWindowBytes   = "kagami.fetch.window.max.bytes"
	ReadyMaxLagRecords = "kagami.ready.max.lag.records"
	ReadyMaxLagMs      = "kagami.ready.max.lag.ms"
)

var brokerSet = newSet("broker", brokerCross,
	brokerNodeDefs(), brokerNetDefs(), brokerListenerDefs(), brokerRightsDefs(), brokerLogDefs(), brokerTopicDefs(), brokerGroupDefs(), brokerTxnDefs(), brokerMirrorDefs(), brokerReplicaDefs(), brokerClusterDefs(), brokerOwnDefs())

// Broker is the set of node configs: Kafka's broker configs.
func Broker() *Set { return brokerSet }

func brokerNodeDefs() []Def {
	return []Def{
		{Name: NodeIDConfig, Type: TypeInt, Default: new("1"), High: true, Change: ChangeRestart, check: atLeast(0), Doc: "Id of this node, different on every node and never changed."},
		{Name: "broker.rack", Type: TypeString, Change: ChangeRestart, Doc: "Rack of this node, told to clients."},
		{Name: "log.dirs", Type: TypeString, Default: new("data"), High: true, Change: ChangeRestart, Doc: "Data folder. Exactly one."},
		{Name: "listeners", Type: TypeList, Default: new("PLAINTEXT://localhost:9094"), High: true, Change: ChangeRestart, check: listenerList(), Doc: "Addresses to bind for Kafka clients."},
		{Name: "advertised.listeners", Type: TypeList, High: true, Change: ChangeRestart, check: listenerList(), Doc: "Addresses told to clients; not set: those of listeners."},
		{Name: "listener.security.protocol.map", Type: TypeList, Default: new("PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"), Change: ChangeRestart, Doc: "Security protocol of each listener name."},
		{Name: InterBrokerListenerName, Type: TypeString, Change: ChangeRestart, Doc: "Listener that nodes use among themselves where they act as Kafka clients."},
		{Name: "unstable.api.versions.enable", Type: TypeBoolean, Default: new("false"), Change: ChangeRestart, Doc: "Accepted and ignored: mirroring needs no switch here."},
		{Name: "unstable.feature.versions.enable", Type: TypeBoolean, Default: new("false"), Change: ChangeRestart, Doc: "Accepted and ignored: mirroring needs no switch here."},
	}
}

func brokerNetDefs() []Def {
	return []Def{
		{Name: "socket.request.max.bytes", Type: TypeInt, Default: new("104857600"), Change: ChangeRestart, check: atLeast(1), Doc: "Largest request, bytes."},
		{Name: QueuedRequestBytes, Type: TypeLong, Default: new("268435456"), Change: ChangeRestart, check: atLeast(-1), Doc: "Bytes of requests above 16 KiB that are held at a time, on all connections; at least socket.request.max.bytes. Who gets no room for 5 s is disconnected. -1: no bound."},
		{Name: QueuedAnswerBytes, Type: TypeLong, Default: new("268435456"), Change: ChangeRestart, check: atLeast(-1), Doc: "The same of answers, records aside: they are sent from their files."},
		{Name: "connections.max.idle.ms", Type: TypeLong, Default: new("600000"), Change: ChangeRestart, check: atLeast(1), Doc: "A connection without traffic is closed after this time, ms."},
		{Name: "max.connections", Type: TypeInt, Default: new("10000"), Change: ChangeRestart, check: atLeast(1), Doc: "Open connections on all listeners."},
		{Name: "max.connections.per.ip", Type: TypeInt, Default: new("2147483647"), Change: ChangeRestart, check: atLeast(1), Doc: "Open connections from one address."},
		{Name: QuotaWindowNum, Type: TypeInt, Default: new("11"), Change: ChangeRestart, check: atLeast(2), Doc: "Windows of quota.window.size.seconds that client quotas are kept over: what a client hasn't used for one less it may use at once."},
		{Name: QuotaWindowSize, Type: TypeInt, Default: new("1"), Change: ChangeRestart, check: atLeast(1), Doc: "Seconds of such a window."},
		{Name: "fetch.max.bytes", Type: TypeInt, Default: new("57671680"), Change: ChangeRestart, check: atLeast(1024), Doc: "Largest Fetch response, bytes; the first batch is always whole."},
		{Name: "max.incremental.fetch.session.cache.slots", Type: TypeInt, Default: new("1000"), Change: ChangeRestart, check: atLeast(0), Doc: "Fetch sessions kept."},
		{Name: "auto.create.topics.enable", Type: TypeBoolean, Default: new("false"), Change: ChangeRestart,
			Doc: "A topic is made when a client that may create it names it. Kafka's default is true; here a topic that came to be by a typo, or by a consumer that was switched too early, would stand in the way of a mirror."},
		{Name: "producer.id.expiration.ms", Type: TypeInt, Default: new("86400000"), Change: ChangeRestart, check: atLeast(1), Doc: "How long, ms, the state of an idle idempotent producer is kept."},
	}
}

func brokerLogDefs() []Def {
	return []Def{
		{Name: "log.retention.check.interval.ms", Type: TypeLong, Default: new("300000"), Change: ChangeRestart, check: atLeast(1), Doc: "Pause, ms, between two looks for segments to delete."},
		{Name: CleanerEnable, Type: TypeBoolean, Default: new("true"), Change: ChangeRestart, Doc: "Whether this node compacts logs of topics with cleanup.policy=compact."},
		{Name: CleanerBackoff, Type: TypeLong, Default: new("15000"), check: atLeast(1), Doc: "Pause, ms, between two looks for logs to compact."},
		{Name: CleanerMapBytes, Type: TypeLong, Default: new("134217728"), check: atLeast(1 << 20), Doc: "Memory, bytes, that the compaction of one log at a time may take for its keys. A log with more keys is compacted in several passes."},
		{Name: CleanerRate, Type: TypeDouble, Default: new("1.7976931348623157E308"), check: atLeast(1), Doc: "Bytes per second that compaction reads and writes at most, together."},
		{Name: MetadataSnapshotBytes, Type: TypeLong, Default: new("20971520"), Change: ChangeRestart, check: atLeast(1),
			Doc: "Bytes of the metadata log after which a snapshot of it is written; 10000 records are another reason."},
		{Name: "log.retention.minutes", Type: TypeInt, check: atLeast(-1), Change: ChangeRestart, Doc: "Default of retention.ms in minutes; log.retention.ms wins."},
		{Name: "log.retention.hours", Type: TypeInt, Default: new("168"), check: atLeast(-1), Change: ChangeRestart, Doc: "Default of retention.ms in hours; log.retention.ms and log.retention.minutes win."},
		{Name: "log.roll.hours", Type: TypeInt, Default: new("168"), check: atLeast(1), Change: ChangeRestart, Doc: "Default of segment.ms in hours; log.roll.ms wins."},
		{Name: "log.roll.jitter.hours", Type: TypeInt, Default: new("0"), check: atLeast(0), Change: ChangeRestart, Doc: "Default of segment.jitter.ms in hours; log.roll.jitter.ms wins."},
		{Name: NumPartitions, Type: TypeInt, Default: new("1"), High: true, check: atLeast(1), Doc: "Partitions of a topic whose creator doesn't say."},
		{Name: DefaultReplicationFactor, Type: TypeInt, Default: new("1"), High: true, check: between(1, 32767), Doc: "Replicas of a topic whose creator doesn't say, and of mirror topics."},
		{Name: ReplicaLagMax, Type: TypeLong, Default: new("30000"), check: atLeast(1), Doc: "How long, ms, a replica may lack what its leader has and count as in sync. Kafka has it in the file only."},
	}
}

// brokerTopicDefs makes the log.* key of every topic config that has one: same
// type and check, settable for all nodes at run time.
func brokerTopicDefs() []Def {
	var out []Def
	for _, name := range topicSet.names {
		d := topicSet.defs[name]
		if len(d.Synonyms) == 0 {
			continue
		}
		b := Def{Name: d.Synonyms[0].Name, Type: d.Type, Default: d.Default, check: d.check, Doc: "Default of the topic config " + name + "."}
		if len(d.Synonyms) > 1 {
			b.Default = nil // the default comes from the key in hours
		}
		out = append(out, b)
	}
	return out
}

func brokerMirrorDefs() []Def {
	return []Def{
		{Name: MirrorStateTopicPartitions, Type: TypeInt, Default: new("50"), Change: ChangeRestart, check: atLeast(1), Doc: "Partitions of __mirror_state. Read when the topic is created; must never change afterwards."},
		{Name: MirrorStateTopicRF, Type: TypeShort, Default: new("3"), Change: ChangeRestart, check: atLeast(1), Doc: "Replicas of __mirror_state: as many as there are nodes at first, this many once nodes have joined."},
		{Name: MirrorStateAuditRetention, Type: TypeLong, Default: new("604800000"), check: atLeast(-1), Doc: "Age, ms, from which superseded records of __mirror_state may go. -1: never."},
		{Name: MirrorNumReplicaFetchers, Type: TypeInt, Default: new("1"), High: true, check: atLeast(1), Doc: "Fetchers per source broker and mirror on a node."},
		{Name: MirrorRefreshInterval, Type: TypeLong, Default: new("30000"), High: true, check: atLeast(0), Doc: "Period, ms, of the metadata refresh. 0: again as soon as the last one ended, at most once per second."},
		{Name: MirrorFetchBackoff, Type: TypeLong, Default: new("1000"), Change: ChangeRestart, check: atLeast(0), Doc: "Pause, ms, of a partition or fetcher after a fetch error."},
		{Name: MirrorFailedRetryInitial, Type: TypeLong, Default: new("1000"), check: atLeast(1), Doc: "Base, ms, of the retry delay of FAILED partitions; the first retry waits twice this."},
		{Name: MirrorFailedRetryMax, Type: TypeLong, Default: new("300000"), check: atLeast(1), Doc: "Longest retry delay, ms."},
		{Name: MirrorFailedRetryAttempts, Type: TypeInt, Default: new("10"), check: atLeast(0), Doc: "Failures in a row after which a partition stays FAILED. 0: unlimited."},
		{Name: MirrorThrottledRate, Type: TypeLong, Default: new(maxLong), Change: ChangeDynamicOnly, check: atLeast(0), Doc: "Bytes per second of mirror traffic that a node takes for throttled replicas. Below 1 MB/s is discouraged."},
		{Name: "mirror.admin.listener.name", Type: TypeString, Change: ChangeRestart, Doc: "Accepted and ignored: what mirrors commit goes from node to node without a Kafka listener."},
		{Name: "sasl.mechanism.mirror.admin.protocol", Type: TypeString, Change: ChangeRestart, Doc: "Accepted and ignored, likewise."},
	}
}

func brokerReplicaDefs() []Def {
	return []Def{
		{Name: ReplicaFetchWaitMax, Type: TypeInt, Default: new("500"), Change: ChangeRestart, check: atLeast(0), Doc: "MaxWaitMs of mirror fetches, ms."},
		{Name: ReplicaFetchMinBytes, Type: TypeInt, Default: new("1"), Change: ChangeRestart, check: atLeast(0), Doc: "MinBytes of mirror fetches."},
		{Name: ReplicaFetchResponseMaxBytes, Type: TypeInt, Default: new("10485760"), Change: ChangeRestart, check: atLeast(0), Doc: "MaxBytes of mirror fetches."},
		{Name: ReplicaFetchMaxBytes, Type: TypeInt, Default: new("1048576"), Change: ChangeRestart, check: atLeast(0), Doc: "PartitionMaxBytes of mirror fetches; the first batch may be larger."},
		{Name: ReplicaSocketTimeout, Type: TypeInt, Default: new("30000"), Change: ChangeRestart, check: atLeast(1), Doc: "Timeout, ms, of requests to a source."},
		{Name: ReplicaSocketReceiveBuffer, Type: TypeInt, Default: new("65536"), Change: ChangeRestart, check: atLeast(-1), Doc: "Socket receive buffer, bytes, of mirror fetches. -1: the system's."},
	}
}

func brokerClusterDefs() []Def {
	return []Def{
		{Name: ClusterPeers, Type: TypeList, High: true, Change: ChangeRestart, Doc: "Nodes of the cluster, as id@host:port of their addresses for one another; this node may be among them. Not set: a cluster of one."},
		{Name: ClusterListen, Type: TypeString, Change: ChangeRestart, Doc: "host:port where other nodes connect to. Not set: this node's address in cluster.peers."},
		{Name: ClusterAdvertised, Type: TypeString, Change: ChangeRestart, Doc: "host:port that other nodes are told, if it isn't cluster.listen."},
		{Name: ClusterID, Type: TypeString, Change: ChangeRestart, Doc: "Cluster id that this node demands. Not set: that of its data folder, or of the cluster it joins; a new cluster gets a random one."},
		{Name: ClusterUser, Type: TypeString, Change: ChangeRestart, Doc: "User that nodes authenticate with among themselves, the same on all."},
		{Name: ClusterPassword, Type: TypePassword, Change: ChangeRestart, Doc: "Password of cluster.user."},
		{Name: ClusterTLSCertificate, Type: TypeString, Change: ChangeRestart, Doc: "PEM file with this node's certificate for connections between nodes. With it go the key and the CA; both sides show a certificate."},
		{Name: ClusterTLSKey, Type: TypeString, Change: ChangeRestart, Doc: "PEM file with the key of that certificate."},
		{Name: ClusterTLSCA, Type: TypeString, Change: ChangeRestart, Doc: "PEM file with the CA that signed the nodes' certificates."},
		{Name: ClusterAllowClear, Type: TypeBoolean, Default: new("false"), Change: ChangeRestart, Doc: "Whether nodes on addresses that aren't loopback may do without cluster.tls.*. Otherwise they don't start."},
		{Name: NATSURL, Type: TypeList, High: true, Change: ChangeRestart, Doc: "Servers of an existing NATS cluster with JetStream, nats://host:port or tls://host:port, that the nodes use instead of servers of their own; in place of cluster.peers. One account for each Kagami cluster, max_payload of at least 21 MiB."},
		{Name: NATSUser, Type: TypeString, Change: ChangeRestart, Doc: "User at those servers."},
		{Name: NATSPassword, Type: TypePassword, Change: ChangeRestart, Doc: "Password of nats.user."},
		{Name: NATSToken, Type: TypePassword, Change: ChangeRestart, Doc: "Token for those servers, in place of user and password."},
		{Name: NATSCredentials, Type: TypeString, Change: ChangeRestart, Doc: "Credentials file (JWT and seed) for those servers, in place of user and password."},
		{Name: NATSTLSCertificate, Type: TypeString, Change: ChangeRestart, Doc: "PEM file with this node's certificate for those servers, if they ask for one."},
		{Name: NATSTLSKey, Type: TypeString, Change: ChangeRestart, Doc: "PEM file with the key of that certificate."},
		{Name: NATSTLSCA, Type: TypeString, Change: ChangeRestart, Doc: "PEM file with the CA of those servers' certificates. Not set: the system's."},
		{Name: NATSReplicas, Type: TypeInt, Default: new("3"), Change: ChangeRestart, check: between(1, 5), Doc: "Copies of each journal stream on those servers: 1, 3 or 5. Of streams that aren't there yet."},
		{Name: ClusterBeatMs, Type: TypeLong, Default: new("250"), Change: ChangeRestart, check: atLeast(10), Doc: "Pause, ms, between two heartbeats of a node."},
		{Name: ClusterDeadMs, Type: TypeLong, Default: new("2500"), Change: ChangeRestart, check: atLeast(100), Doc: "A node without a heartbeat for this time, ms, counts as dead, and one that the journal doesn't reach for it leads nothing."},
		{Name: JournalSyncMs, Type: TypeLong, Default: new("0"), Change: ChangeRestart, check: atLeast(0), Doc: "How often, ms, the journal's files are synced. 0: in every write, before it counts."},
		{Name: JournalBytes, Type: TypeLong, Default: new("8589934592"), Change: ChangeRestart, check: atLeast(1 << 20), Doc: "Bytes that one journal shard may hold. What doesn't fit is refused, never dropped."},
		{Name: JournalCheckpointMs, Type: TypeLong, Default: new("5000"), Change: ChangeRestart, check: atLeast(10), Doc: "Pause, ms, between two checkpoints of a node's replicas; the journal keeps what came since."},
		{Name: JournalElectionMs, Type: TypeLong, Default: new("0"), Change: ChangeRestart, check: atLeast(0), Doc: "After how long a silence, ms, of the node that leads a journal stream another one is elected: this to twice this. 0: the embedded server's own timers, 4000 to 9000; else 500 to 4000, the same on all nodes. Lower values take a long pause for a death."},
	}
}

func brokerOwnDefs() []Def {
	return []Def{
		{Name: AdminListen, Type: TypeString, Default: new("localhost:9644"), Change: ChangeRestart, Doc: "Address of the admin HTTP server: health, readiness, metrics, status page."},
		{Name: "kagami.log.level", Type: TypeString, Default: new("info"), Change: ChangeRestart, check: oneOf("debug", "info", "warn", "error"), Doc: "Least level of the node's own log."},
		{Name: "kagami.log.format", Type: TypeString, Default: new("console"), Change: ChangeRestart, check: oneOf("console", "json"), Doc: "Form of the node's own log."},
		{Name: "kagami.pprof.enable", Type: TypeBoolean, Default: new("false"), Change: ChangeRestart, Doc: "Serve Go's profiler on the admin address."},
		{Name: FetchWindowBytes, Type: TypeInt, Default: new("33554432"), Change: ChangeRestart, check: between(0, 268435456), Doc: "A mirror fetch from a source that is far (10 ms and more until the first byte of an answer, and most of the time spent on that) asks for more than replica.fetch.response.max.bytes and replica.fetch.max.bytes, at most so many bytes, so that a long way is filled. Partitions under mirror.replication.throttled.replicas don't. 0: never."},
		{Name: ReadyMaxLagRecords, Type: TypeLong, Default: new("10000"), check: atLeast(0), Doc: "/readyz answers 503 while a MIRRORING partition that this node leads lags by more records."},
		{Name: ReadyMaxLagMs, Type: TypeLong, Default: new("30000"), check: atLeast(0), Doc: "The same by the age, ms, of the oldest record not yet copied."},
	}
}

func brokerCross(v Values) []error {
	if a, b := v.Int64(MirrorFailedRetryInitial), v.Int64(MirrorFailedRetryMax); a > b {
		return []error{fmt.Errorf("%w: %s (%d) is above %s (%d)", messages.ErrInvalidConfig, MirrorFailedRetryInitial, a, MirrorFailedRetryMax, b)}
	}
	return nil
}

// ValidateFile checks the settings of a node's file: every fault together, each
// wrapping messages.ErrInvalidConfig. Keys that aren't known come back in
// order; a file written for Kafka has many of them, so they are for a warning.
func ValidateFile(static map[string]string) (unknown []string, err error) {
	known := make(map[string]string, len(static))
	handled, errs := checkListenerKeys(static)
	for _, name := range slices.Sorted(maps.Keys(static)) {
		switch d := brokerSet.Lookup(name); {
		case handled[name]:
		case d == nil:
			unknown = append(unknown, name)
		case d.Change == ChangeDynamicOnly:
			errs = append(errs, d.fault("it is changed at run time only: it can't stand in the file"))
		default:
			known[name] = static[name]
		}
	}
	return unknown, errors.Join(append(errs, brokerSet.Validate(known))...)
}
