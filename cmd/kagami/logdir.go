package main

import "kagami/broker"

// logDir is the data folder as DescribeLogDirs tells it.
func (n *node) logDir() broker.LogDir {
	d := broker.LogDir{Path: n.settings.dataDir}
	d.Total, d.Usable = diskBytes(n.settings.dataDir)
	for _, i := range n.manager.Infos() {
		if r, err := n.replicas.Get(i.TopicPartition); err == nil {
			d.Logs = append(d.Logs, broker.LogSize{TopicPartition: i.TopicPartition, Bytes: r.Log().SizeBytes()})
		}
	}
	return d
}
