// Package tool is the command line tools under Kafka's names:
// kafka-cluster-mirrors, kafka-configs and kafka-dump-log. Their mains only call
// it.
//
// Its main functions are [ClusterMirrors], [Configs] and [DumpLog]: each takes
// the arguments and the streams, and returns the exit code. What they print is
// fixed by cli.md and, where that says nothing, by Kafka's own tools. They own
// their connections for the time of the call, keep nothing, and never print a
// password.
package tool
