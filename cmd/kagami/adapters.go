package main

import (
	"fmt"
	"net"

	"kagami/broker"
	"kagami/cluster"
	"kagami/messages"
)

// partitions finds the partitions that this node leads, for the broker.
type partitions struct{ replicas *cluster.Replicas }

func (p partitions) Partition(tp messages.TopicPartition, id messages.TopicID) (broker.Partition, error) {
	r, err := p.replicas.Leading(tp, id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func portOf(a net.Addr) (int32, error) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("listener has no port: %v", a)
	}
	return int32(tcp.Port), nil
}
