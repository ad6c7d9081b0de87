package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var adminChecks = []check{
	{"kadm creates, lists, grows and deletes topics", adminTopics},
	{"kadm describes and alters configs", adminConfigs},
	{"kadm lists offsets and deletes records", adminOffsets},
	{"kadm describes brokers, APIs, log dirs and producers", adminCluster},
}

func makeTopic(ctx context.Context, address, topic string) error {
	return withAdmin(address, func(_ *kgo.Client, admin *kadm.Client) error {
		_, err := admin.CreateTopic(ctx, partitions, 1, nil, topic)
		return err
	})
}

func adminTopics(ctx context.Context, address string) error {
	return withAdmin(address, func(_ *kgo.Client, admin *kadm.Client) error {
		retention := "123456"
		made, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &retention}, "go-admin")
		if err := first(err, same("partitions", made.NumPartitions, 2)); err != nil {
			return err
		}
		if _, err := admin.CreateTopic(ctx, 2, 1, nil, "go-admin"); !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("created twice: %v", err)
		}
		grown, err := admin.CreatePartitions(ctx, 2, "go-admin")
		if err := first(err, grown.Error()); err != nil {
			return err
		}
		topics, err := admin.ListTopics(ctx, "go-admin")
		if err != nil {
			return err
		}
		topic := topics["go-admin"]
		err = first(topic.Err, same("partitions", len(topic.Partitions), 4), same("id", topic.ID.String(), made.ID.String()))
		if err != nil {
			return err
		}
		gone, err := admin.DeleteTopic(ctx, "go-admin")
		if err := first(err, gone.Err); err != nil {
			return err
		}
		topics, err = admin.ListTopics(ctx)
		return first(err, same("still there", topics.Has("go-admin"), false))
	})
}

func adminConfigs(ctx context.Context, address string) error {
	return withAdmin(address, func(_ *kgo.Client, admin *kadm.Client) error {
		if err := makeTopic(ctx, address, "go-configs"); err != nil {
			return err
		}
		value := "4321"
		altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, "go-configs")
		if err != nil {
			return err
		}
		for _, each := range altered {
			if each.Err != nil {
				return each.Err
			}
		}
		described, err := admin.DescribeTopicConfigs(ctx, "go-configs")
		if err != nil {
			return err
		}
		found := "not there"
		for _, config := range described[0].Configs {
			if config.Key == "retention.ms" {
				found = config.MaybeValue()
			}
		}
		brokers, err := admin.DescribeBrokerConfigs(ctx, 0)
		if err := first(err, same("retention.ms", found, value)); err != nil {
			return err
		}
		return first(brokers[0].Err, same("broker has configs", len(brokers[0].Configs) > 50, true))
	})
}

func adminOffsets(ctx context.Context, address string) error {
	return withAdmin(address, func(client *kgo.Client, admin *kadm.Client) error {
		const topic = "go-offsets"
		if err := makeTopic(ctx, address, topic); err != nil {
			return err
		}
		start := time.Now().Truncate(time.Millisecond)
		for number := range 10 {
			record := &kgo.Record{Topic: topic, Timestamp: start.Add(time.Duration(number) * time.Second), Value: []byte("v")}
			if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
				return err
			}
		}
		delete := make(kadm.Offsets)
		delete.AddOffset(topic, 0, 4, -1)
		deleted, err := admin.DeleteRecords(ctx, delete)
		if err := first(err, deleted.Error()); err != nil {
			return err
		}
		starts, startErr := admin.ListStartOffsets(ctx, topic)
		ends, endErr := admin.ListEndOffsets(ctx, topic)
		committed, committedErr := admin.ListCommittedOffsets(ctx, topic)
		later, laterErr := admin.ListOffsetsAfterMilli(ctx, start.UnixMilli()+6500, topic)
		largest, largestErr := admin.ListMaxTimestampOffsets(ctx, topic)
		return first(startErr, endErr, committedErr, laterErr, largestErr,
			same("start", starts[topic][0].Offset, 4), same("end", ends[topic][0].Offset, 10),
			same("committed end", committed[topic][0].Offset, 10), same("after a time", later[topic][0].Offset, 7),
			same("largest timestamp", largest[topic][0].Offset, 9))
	})
}

func adminCluster(ctx context.Context, address string) error {
	return withAdmin(address, func(client *kgo.Client, admin *kadm.Client) error {
		const topic = "go-cluster"
		if err := makeTopic(ctx, address, topic); err != nil {
			return err
		}
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
			return err
		}
		metadata, err := admin.BrokerMetadata(ctx)
		if err := first(err, same("brokers", len(metadata.Brokers), 1), same("controller", metadata.Controller, 0)); err != nil {
			return err
		}
		versions, err := admin.ApiVersions(ctx)
		if err != nil {
			return err
		}
		ours := versions[0]
		produce, _ := ours.KeyMaxVersion(0)
		dirs, err := admin.DescribeAllLogDirs(ctx, nil)
		if err := first(err, same("speaks Produce v9 and up", produce >= 9, true), dirs[0].Error()); err != nil {
			return err
		}
		var wanted kadm.TopicsSet
		wanted.Add(topic, 0)
		producers, err := admin.DescribeProducers(ctx, wanted)
		if err != nil {
			return err
		}
		return same("producers", len(producers[topic].Partitions[0].ActiveProducers), 1)
	})
}
