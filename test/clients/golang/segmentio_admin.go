package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"
)

func segmentioAdmin(ctx context.Context, j *job) error {
	c := &kafka.Client{Addr: kafka.TCP(j.bootstrap()...), Transport: &kafka.Transport{ClientID: j.text("name")}}
	topic, records, group := j.text("topic"), j.text("records"), j.text("group")
	if j.text("phase") == "remove" {
		deleted, err := c.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
		if err == nil {
			err = deleted.Errors[group]
		}
		if err := j.step("delete-group", err); err != nil {
			return err
		}
		gone, err := c.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
		if err == nil {
			err = gone.Errors[topic]
		}
		return j.step("delete-topic", err)
	}
	created, err := c.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic, NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "3600000"}},
	}}})
	if err == nil {
		err = created.Errors[topic]
	}
	if err := j.step("create-topic", err); err != nil {
		return err
	}
	more, err := c.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 3}}})
	if err == nil {
		err = more.Errors[topic]
	}
	if err := j.step("create-partitions", err); err != nil {
		return err
	}
	altered, err := c.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "7200000", ConfigOperation: kafka.ConfigOperationSet}},
	}}})
	if err == nil {
		err = altered.Resources[0].Error
	}
	if err := j.step("alter-config", err); err != nil {
		return err
	}
	configs, err := c.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}}})
	if err != nil {
		return fmt.Errorf("describe-config: %w", err)
	}
	for _, e := range configs.Resources[0].ConfigEntries {
		if e.ConfigName == "retention.ms" {
			_ = j.step("describe-config", configs.Resources[0].Error, e.ConfigValue)
		}
	}
	// What a transport knows of topics is up to six seconds old.
	fresh := &kafka.Client{Addr: c.Addr, Transport: &kafka.Transport{ClientID: j.text("name")}}
	meta, err := fresh.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return fmt.Errorf("describe-topic: %w", err)
	}
	_ = j.step("describe-topic", nil, len(meta.Topics[0].Partitions))
	j.say("lacks", "delete-records")
	offsets, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{records: {kafka.FirstOffsetOf(0)}}})
	if err != nil {
		return fmt.Errorf("list-offsets: %w", err)
	}
	_ = j.step("list-offsets", nil, offsets.Topics[records][0].FirstOffset)
	return segmentioGroups(ctx, j, c, records, group)
}

func segmentioGroups(ctx context.Context, j *job, c *kafka.Client, records, group string) error {
	groups, err := c.ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return fmt.Errorf("list-groups: %w", err)
	}
	listed := false
	for _, g := range groups.Groups {
		listed = listed || g.GroupID == group
	}
	_ = j.step("list-groups", groups.Error, listed)
	described, err := c.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return fmt.Errorf("describe-group: %w", err)
	}
	_ = j.step("describe-group", described.Groups[0].Error, described.Groups[0].GroupState)
	set, err := c.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{records: {{Partition: 0, Offset: 4}}}})
	if err == nil {
		err = set.Topics[records][0].Error
	}
	if err := j.step("alter-offsets", err); err != nil {
		return err
	}
	at, err := c.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{records: {0}}})
	if err != nil {
		return fmt.Errorf("fetch-offsets: %w", err)
	}
	return errors.Join(at.Error, j.step("fetch-offsets", at.Topics[records][0].Error, at.Topics[records][0].CommittedOffset))
}
