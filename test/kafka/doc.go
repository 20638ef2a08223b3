// Package kafka runs real Apache Kafka for the tests: one or several brokers as
// plain JVM processes on 127.0.0.1, Kafka's own command line tools from the same
// jars, MirrorMaker 2, and Kafka's own producers and consumers, which the small
// program in java/ drives. Nothing is downloaded by hand: the jars are Maven
// artifacts named in poms/, resolved once per machine into the local Maven
// repository, and remembered as a class path file in the user's cache folder.
//
// Its main types are [Cluster] and [Options]. [Start] ties a cluster to one test;
// [New] and [Cluster.Close] serve clusters that several tests share. [StartJava]
// runs clients. [Require] skips a test where a JDK 17 or Maven are missing, and
// counts; where CI=true it fails instead.
//
// Releases from 3.3 on run in KRaft combined mode, older ones with a ZooKeeper
// of their own. A cluster owns its processes and folders and leaves neither behind.
package kafka
