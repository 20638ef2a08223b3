package messages

// PlannedStart is what a start would do to one partition; nothing has happened.
type PlannedStart struct {
	Topic     string
	Partition int32
	LogEnd    int64 // log end here; NoOffset = there is no such partition yet
	CutTo     int64 // log end after all cuts of the start; NoOffset = not known
	Records   int64 // that go, control records included; -1 = not known
	Bytes     int64 // of their batches; -1 = not known
	LME       int32 // last mirror epoch that the source has; NoEpoch = none
	Reason    string
	Unknown   bool // Reason says why the plan isn't known
	Refused   bool // Reason says why the topic wouldn't start
}
