package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
)

func (d *driver) administer(ctx context.Context, c *command) (any, error) {
	switch c.Op {
	case "create_topic":
		configs := map[string]*string{}
		for name, value := range c.Configs {
			configs[name] = &value
		}
		_, err := d.admin.CreateTopic(ctx, c.Partitions, c.ReplicationFactor, configs, c.Topic)
		return nil, err
	case "delete_topic":
		_, err := d.admin.DeleteTopic(ctx, c.Topic)
		return nil, err
	case "topics":
		listed, err := d.admin.ListTopics(ctx)
		found := map[string]int{}
		for _, each := range listed {
			found[each.Topic] = len(each.Partitions)
		}
		return found, err
	case "add_partitions":
		answers, err := d.admin.UpdatePartitions(ctx, c.Total, c.Topic)
		return nil, errors.Join(err, answers.Error())
	case "configs":
		answers, err := d.admin.DescribeTopicConfigs(ctx, c.Topic)
		if err != nil {
			return nil, err
		}
		answer, err := answers.On(c.Topic, nil)
		found := map[string]string{}
		for _, each := range answer.Configs {
			found[each.Key] = each.MaybeValue()
		}
		return found, errors.Join(err, answer.Err)
	case "set_config":
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: c.Name, Value: &c.Value}
		answers, err := d.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, c.Topic)
		if err != nil {
			return nil, err
		}
		answer, err := answers.On(c.Topic, nil)
		return nil, errors.Join(err, answer.Err)
	case "offset_at":
		return d.offsetAt(ctx, c)
	case "delete_records":
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: c.Topic, Partition: c.Partition, At: c.Before})
		answers, err := d.admin.DeleteRecords(ctx, offsets)
		if err != nil {
			return nil, err
		}
		answer, _ := answers.Lookup(c.Topic, c.Partition)
		return answer.LowWatermark, answer.Err
	}
	return d.administerGroups(ctx, c)
}

func (d *driver) offsetAt(ctx context.Context, c *command) (any, error) {
	var listed kadm.ListedOffsets
	var err error
	switch at := c.At.(type) {
	case float64:
		listed, err = d.admin.ListOffsetsAfterMilli(ctx, int64(at), c.Topic)
	case string:
		if at == "earliest" {
			listed, err = d.admin.ListStartOffsets(ctx, c.Topic)
		} else {
			listed, err = d.admin.ListEndOffsets(ctx, c.Topic)
		}
	}
	if err != nil {
		return nil, err
	}
	found, _ := listed.Lookup(c.Topic, c.Partition)
	return found.Offset, found.Err
}

func (d *driver) administerGroups(ctx context.Context, c *command) (any, error) {
	switch c.Op {
	case "groups":
		listed, err := d.admin.ListGroups(ctx)
		return listed.Groups(), err
	case "describe_group":
		described, err := d.admin.DescribeGroups(ctx, *c.Group)
		if err != nil {
			return nil, err
		}
		found := described[*c.Group]
		return map[string]any{"state": found.State, "protocol": found.Protocol, "members": len(found.Members)}, found.Err
	case "group_offsets":
		fetched, err := d.admin.FetchOffsets(ctx, *c.Group)
		rows := [][]any{}
		fetched.Each(func(each kadm.OffsetResponse) {
			rows = append(rows, []any{each.Topic, each.Partition, each.At, each.Metadata})
		})
		return rows, err
	case "delete_group":
		_, err := d.admin.DeleteGroup(ctx, *c.Group)
		return nil, err
	}
	return nil, errors.New("no such command: " + c.Op)
}
