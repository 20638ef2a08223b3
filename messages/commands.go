package messages

// Command is a change that only the controller makes: it turns a command and
// the current image into metadata records. The list below is closed.
type Command interface{ command() }

// ResourceType is Kafka's config resource type.
type ResourceType int8

// The config resource types that this cluster knows.
const (
	ResourceTopic         ResourceType = 2
	ResourceBroker        ResourceType = 4  // name "" = the default of all nodes
	ResourceBrokerLogger  ResourceType = 8  // levels of a node's log; not stored
	ResourceClientMetrics ResourceType = 16 // a subscription (KIP-714)
	ResourceGroup         ResourceType = 32
	ResourceClusterMirror ResourceType = 64
)

// ConfigOp is an operation of IncrementalAlterConfigs.
type ConfigOp int8

// Kafka's numbers for config operations.
const (
	ConfigSet      ConfigOp = 0
	ConfigDelete   ConfigOp = 1
	ConfigAppend   ConfigOp = 2
	ConfigSubtract ConfigOp = 3
)

// ConfigChange is one operation on one key. Value nil with ConfigSet is refused
// except at mirror creation, where it means the default.
type ConfigChange struct {
	Name  string
	Op    ConfigOp
	Value *string
}

// NewTopic describes a topic to create.
type NewTopic struct {
	Name              string
	ID                TopicID // zero: a random one
	Partitions        int32   // -1: num.partitions of the cluster
	ReplicationFactor int16   // -1: default.replication.factor
	Assignment        map[int32][]NodeID
	Configs           map[string]*string
}

// CreateTopics creates ordinary topics. Answer: one item per topic, in order,
// with TopicID, Partitions and ReplicationFactor set on success.
type CreateTopics struct {
	Topics       []NewTopic
	ValidateOnly bool
}

// DeleteTopics deletes topics by name, or by id where the name is empty.
type DeleteTopics struct {
	Names []string
	IDs   []TopicID
}

// CreatePartitions raises partition counts. Mirror says that the mirror
// manager asks, which may grow read-only topics; clients may not (OP-23).
type CreatePartitions struct {
	Topics       []PartitionCount
	ValidateOnly bool
	Mirror       bool
}

// PartitionCount is the new total of a topic.
type PartitionCount struct {
	Topic      string
	Count      int32
	Assignment [][]NodeID // for the new partitions only; nil: automatic
}

// AlterConfigs changes configs of topics, brokers and mirrors; one item per
// resource in the answer. Replace: the full set is replaced (AlterConfigs 33).
type AlterConfigs struct {
	Resources    []ResourceChange
	Replace      bool
	ValidateOnly bool
	Internal     bool // the mirror manager asks: copied keys, mirror.source.cluster.id
	// Expect, if not nil, is what is set of a mirror's connection settings where the
	// change was decided: when it isn't any more, the mirror is left as it is
	// ([ErrSettingsChanged]).
	Expect map[string]string
}

// ResourceChange is the changes of one resource.
type ResourceChange struct {
	Type    ResourceType
	Name    string
	Changes []ConfigChange
}

// CreateMirror is workflows.md "Create mirror".
type CreateMirror struct {
	Name    string
	Configs []ConfigChange
}

// DeleteMirror is workflows.md "Delete mirror", step 2 on. The caller has
// checked that every partition is STOPPED.
type DeleteMirror struct{ Name string }

// MirrorTopic names a topic in a mirror request. NumPartitions is used by start
// only: the source's count, 0 or negative = do not create.
type MirrorTopic struct {
	Name          string
	ID            TopicID
	NumPartitions int32
}

// StartMirrorTopics is workflows.md "Start", steps 4 and 5. The caller has
// checked partition states (step 3) and loops (OP-35).
type StartMirrorTopics struct {
	Mirror  string
	Topics  []MirrorTopic
	Include []string
	Exclude []string
}

// StopMirrorTopics is workflows.md "Stop", steps 2 and 3.
type StopMirrorTopics struct {
	Mirror   string
	Topics   []MirrorTopic
	Patterns []string
}

// PauseMirrorTopics and ResumeMirrorTopics are workflows.md "Pause and resume".
type PauseMirrorTopics struct {
	Mirror string
	Topics []MirrorTopic
}

// ResumeMirrorTopics undoes PauseMirrorTopics.
type ResumeMirrorTopics struct {
	Mirror string
	Topics []MirrorTopic
}

// BumpLeaderEpochs is workflows.md "Bumping leader epochs": new epoch =
// max(MinLeaderEpoch, current) + 1. Items answer in the order of Bumps.
type BumpLeaderEpochs struct{ Bumps []EpochBump }

// EpochBump asks for one partition.
type EpochBump struct {
	TopicID        TopicID
	Partition      int32
	MinLeaderEpoch int32
}

// AllocateProducerIDs takes a block of producer ids; the answer's only item has
// FirstProducerID and Count.
type AllocateProducerIDs struct{ Count int32 }

// RegisterNode tells the controller that a node is there, with its listeners.
type RegisterNode struct{ Node Node }

// UnregisterNode takes a dead node out of the cluster for good: its replicas go to
// other nodes. A live one is refused.
type UnregisterNode struct{ ID NodeID }

// PlaceLeaders has the controller look at who leads what: partitions whose leader
// isn't live go to a live replica, at most Back leaderships go back to their
// preferred replica or, while all nodes are there, from a node that leads too much to
// another one, replicas of nodes that were unregistered go to others, and
// partitions of internal and mirror topics that have fewer replicas than configured
// get more, as nodes are there. Its item counts changes.
type PlaceLeaders struct {
	// Live nodes, as the controller sees them.
	Live []NodeID
	// Behind are replicas that can't lead now, by partition.
	Behind map[NodeID][]PartitionKey
	// Lagging nodes are alive and not where the others are, or don't serve yet: they
	// keep what they lead, and get more only if nobody else can.
	Lagging []NodeID
	// Alone: topics created below this offset of the metadata log were made by a
	// cluster of one, where one replica was all there could be; they get more, too.
	Alone int64
	Back  int
	// Max bounds the changes of one command; there may be more to do.
	Max int
}

// Node is a registered node. Host has no brackets for IPv6.
type Node struct {
	ID          NodeID
	Rack        string
	Incarnation TopicID
	Endpoints   []Endpoint
}

// Endpoint is an advertised address of a listener.
type Endpoint struct {
	Listener string
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
	Host     string
	Port     int32
}

func (CreateTopics) command()        {}
func (DeleteTopics) command()        {}
func (CreatePartitions) command()    {}
func (AlterConfigs) command()        {}
func (CreateMirror) command()        {}
func (DeleteMirror) command()        {}
func (StartMirrorTopics) command()   {}
func (StopMirrorTopics) command()    {}
func (PauseMirrorTopics) command()   {}
func (ResumeMirrorTopics) command()  {}
func (BumpLeaderEpochs) command()    {}
func (AllocateProducerIDs) command() {}
func (RegisterNode) command()        {}
func (UnregisterNode) command()      {}
func (PlaceLeaders) command()        {}

// Outcome is the controller's answer to a command. Err refuses the whole
// command; otherwise each item stands for itself.
type Outcome struct {
	Err    error
	Items  []Item
	Offset int64 // metadata offset after the change: an image at or above it shows it
}

// Item is the outcome for one topic, resource or partition.
type Item struct {
	Name            string
	TopicID         TopicID
	Partition       int32
	Err             error // wraps a sentinel of errors.go
	Partitions      int32
	Replication     int16
	FirstProducerID int64
	Count           int32
	ACLs            []ACL // that a filter of DeleteACLs has found
}
