package main

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
)

func saramaAdmin(_ context.Context, j *job) error {
	cl, err := sarama.NewClient(j.bootstrap(), saramaConfig(j))
	if err != nil {
		return err
	}
	adm, err := sarama.NewClusterAdminFromClient(cl)
	if err != nil {
		return err
	}
	defer adm.Close()
	topic, records, group := j.text("topic"), j.text("records"), j.text("group")
	if j.text("phase") == "remove" {
		if err := j.step("delete-group", adm.DeleteConsumerGroup(group)); err != nil {
			return err
		}
		return j.step("delete-topic", adm.DeleteTopic(topic))
	}
	hour, two := "3600000", "7200000"
	if err := j.step("create-topic", adm.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &hour}}, false)); err != nil {
		return err
	}
	if err := j.step("create-partitions", adm.CreatePartitions(topic, 3, nil, false)); err != nil {
		return err
	}
	if err := j.step("alter-config", adm.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &two}}, false)); err != nil {
		return err
	}
	entries, err := adm.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name == "retention.ms" {
			_ = j.step("describe-config", nil, e.Value)
		}
	}
	meta, err := adm.DescribeTopics([]string{topic})
	if err != nil {
		return fmt.Errorf("describe-topic: %w", err)
	}
	_ = j.step("describe-topic", nil, len(meta[0].Partitions))
	if err := j.step("delete-records", adm.DeleteRecords(records, map[int32]int64{0: 3})); err != nil {
		return err
	}
	start, err := cl.GetOffset(records, 0, sarama.OffsetOldest)
	if err := j.step("list-offsets", err, start); err != nil {
		return err
	}
	groups, err := adm.ListConsumerGroups()
	_, listed := groups[group]
	if err := j.step("list-groups", err, listed); err != nil {
		return err
	}
	described, err := adm.DescribeConsumerGroups([]string{group})
	if err != nil {
		return fmt.Errorf("describe-group: %w", err)
	}
	_ = j.step("describe-group", nil, described[0].State)
	_, err = adm.AlterConsumerGroupOffsets(group, map[string]map[int32]sarama.OffsetAndMetadata{records: {0: {Offset: 4, LeaderEpoch: -1}}}, nil)
	if err := j.step("alter-offsets", err); err != nil {
		return err
	}
	offsets, err := adm.ListConsumerGroupOffsets(group, map[string][]int32{records: {0}})
	if err != nil {
		return fmt.Errorf("fetch-offsets: %w", err)
	}
	return j.step("fetch-offsets", nil, offsets.GetBlock(records, 0).Offset)
}
