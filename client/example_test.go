package client_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/messages/wire/wiretest"
)

// destination is a scripted cluster that stands for Kagami in the examples.
func destination() *wiretest.Cluster {
	c, err := wiretest.NewCluster(1)
	if err != nil {
		panic(err)
	}
	c.Handle(wire.KeyCreateClusterMirror, func(int32, kmsg.Request) kmsg.Response {
		return wire.NewPtrCreateClusterMirrorResponse()
	})
	c.Handle(wire.KeyListClusterMirrors, func(int32, kmsg.Request) kmsg.Response {
		resp := wire.NewPtrListClusterMirrorsResponse()
		resp.Mirrors = []wire.ListClusterMirrorsResponseListedMirror{{MirrorName: "my-mirror", SourceBootstrap: "localhost:9091", TopicCount: 2}}
		return resp
	})
	c.Handle(wire.KeyStartMirrorTopics, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := wire.NewPtrStartMirrorTopicsResponse()
		for _, t := range req.(*wire.StartMirrorTopicsRequest).Topics {
			resp.Topics = append(resp.Topics, wire.StartMirrorTopicsResponseTopicResult{Name: t.TopicName})
		}
		return resp
	})
	c.Handle(wire.KeyStopMirrorTopics, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := wire.NewPtrStopMirrorTopicsResponse()
		for _, t := range req.(*wire.StopMirrorTopicsRequest).Topics {
			resp.Topics = append(resp.Topics, wire.StopMirrorTopicsResponseTopicResult{Name: t.TopicName})
		}
		return resp
	})
	c.Handle(wire.KeyDeleteClusterMirror, func(int32, kmsg.Request) kmsg.Response {
		resp := wire.NewPtrDeleteClusterMirrorResponse()
		resp.ErrorCode = wire.CodeClusterMirrorNotEmpty
		return resp
	})
	c.Handle(wire.KeyDescribeClusterMirrors, func(int32, kmsg.Request) kmsg.Response {
		resp := wire.NewPtrDescribeClusterMirrorsResponse()
		p := wire.NewDescribeClusterMirrorsResponsePartitionDetail()
		p.State, p.SourceOffset, p.DestinationOffset, p.Lag = "MIRRORING", 69, 66, 3
		m := wire.NewDescribeClusterMirrorsResponseDescribedMirror()
		m.MirrorName = "my-mirror"
		m.Topics = []wire.DescribeClusterMirrorsResponseTopicPartitions{{TopicName: "orders", Partitions: []wire.DescribeClusterMirrorsResponsePartitionDetail{p}}}
		resp.Mirrors = append(resp.Mirrors, m)
		return resp
	})
	return c
}

// Create a mirror, and start one topic and all later ones that match a pattern.
func Example() {
	cluster := destination()
	defer cluster.Close()
	ctx := context.Background()

	cl, err := client.New(kgo.SeedBrokers(cluster.Addr(0)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cl.Close()

	source := "localhost:9091"
	if err := cl.CreateClusterMirror(ctx, "my-mirror", map[string]*string{"bootstrap.servers": &source}); err != nil {
		fmt.Println(err)
		return
	}
	results, err := cl.StartMirrorTopics(ctx, "my-mirror", []string{"orders"}, client.StartOptions{
		IncludePatterns: []string{"orders.*"},
		TopicMetadata:   map[string]client.TopicMetadata{"orders": {Partitions: 1}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("started", results.Accepted())
	// Output: started [orders]
}

func ExampleClient_ListClusterMirrors() {
	cluster := destination()
	defer cluster.Close()
	cl, _ := client.New(kgo.SeedBrokers(cluster.Addr(0)))
	defer cl.Close()

	mirrors, err := cl.ListClusterMirrors(context.Background())
	for _, m := range mirrors {
		fmt.Println(m.Name, m.SourceBootstrap, m.TopicCount, err)
	}
	// Output: my-mirror localhost:9091 2 <nil>
}

// Fail over: stop the topics, then wait until describe says STOPPED.
func ExampleClient_StopMirrorTopics() {
	cluster := destination()
	defer cluster.Close()
	cl, _ := client.New(kgo.SeedBrokers(cluster.Addr(0)))
	defer cl.Close()

	results, err := cl.StopMirrorTopics(context.Background(), "my-mirror", []string{"orders"}, "orders.*")
	fmt.Println(results.Accepted(), results.Err(), err)
	// Output: [orders] <nil> <nil>
}

// Errors match the sentinels of package messages.
func ExampleClient_DeleteClusterMirror() {
	cluster := destination()
	defer cluster.Close()
	cl, _ := client.New(kgo.SeedBrokers(cluster.Addr(0)))
	defer cl.Close()

	err := cl.DeleteClusterMirror(context.Background(), "my-mirror")
	fmt.Println(errors.Is(err, messages.ErrMirrorNotEmpty), err)
	// Output: true The cluster mirror still has active or paused topics.
}

func ExampleClient_DescribeClusterMirrors() {
	cluster := destination()
	defer cluster.Close()
	cl, _ := client.New(kgo.SeedBrokers(cluster.Addr(0)))
	defer cl.Close()

	d, err := cl.DescribeClusterMirrors(context.Background(), nil, client.DescribeOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range d.Names() {
		for _, p := range d.Mirrors[name].Partitions {
			fmt.Printf("%s %s-%d %s lag %d\n", name, p.Topic, p.Partition, p.State, p.Lag)
		}
	}
	// Output: my-mirror orders-0 MIRRORING lag 3
}
