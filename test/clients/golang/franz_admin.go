package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

func franzAdmin(ctx context.Context, j *job) error {
	cl, err := franzClient(j)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm, topic, records, group := kadm.NewClient(cl), j.text("topic"), j.text("records"), j.text("group")
	if j.text("phase") == "remove" {
		_, err := adm.DeleteGroup(ctx, group)
		if err := j.step("delete-group", err); err != nil {
			return err
		}
		_, err = adm.DeleteTopic(ctx, topic)
		return j.step("delete-topic", err)
	}
	hour, two := "3600000", "7200000"
	_, err = adm.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &hour}, topic)
	if err := j.step("create-topic", err); err != nil {
		return err
	}
	more, err := adm.UpdatePartitions(ctx, 3, topic)
	if err == nil {
		err = more.Error()
	}
	if err := j.step("create-partitions", err); err != nil {
		return err
	}
	altered, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &two}}, topic)
	if err == nil {
		_, err = altered.On(topic, nil)
	}
	if err := j.step("alter-config", err); err != nil {
		return err
	}
	configs, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	for _, c := range configs[0].Configs {
		if c.Key == "retention.ms" {
			if err := j.step("describe-config", configs[0].Err, c.MaybeValue()); err != nil {
				return err
			}
		}
	}
	details, err := adm.ListTopics(ctx)
	if err := j.step("describe-topic", err, len(details[topic].Partitions)); err != nil {
		return err
	}
	before := kadm.Offsets{}
	before.AddOffset(records, 0, 3, -1)
	cut, err := adm.DeleteRecords(ctx, before)
	if err == nil {
		err = cut.Error()
	}
	if err := j.step("delete-records", err); err != nil {
		return err
	}
	starts, err := adm.ListStartOffsets(ctx, records)
	if err := j.step("list-offsets", err, starts[records][0].Offset); err != nil {
		return err
	}
	return franzGroups(ctx, j, adm, records, group)
}

func franzGroups(ctx context.Context, j *job, adm *kadm.Client, records, group string) error {
	listed, err := adm.ListGroups(ctx)
	if err := j.step("list-groups", err, len(listed[group].Group) > 0); err != nil {
		return err
	}
	described, err := adm.DescribeGroups(ctx, group)
	if err := j.step("describe-group", err, described[group].State); err != nil {
		return err
	}
	to := kadm.Offsets{}
	to.AddOffset(records, 0, 4, -1)
	set, err := adm.CommitOffsets(ctx, group, to)
	if err == nil {
		err = set.Error()
	}
	if err := j.step("alter-offsets", err); err != nil {
		return err
	}
	offsets, err := adm.FetchOffsets(ctx, group)
	at, _ := offsets.Lookup(records, 0)
	return j.step("fetch-offsets", err, at.At)
}
