package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const groupRecords = 120

var groupChecks = []check{
	{"kgo group: members share, and one takes over from the other", sharing},
	{"kgo group: goes on where it committed", goesOn},
	{"kadm describes, lists and deletes groups and their offsets", adminGroups},
	{"kgo transactions: committed ones are read, aborted ones are not", transactions},
	{"kgo GroupTransactSession copies each record once", copies},
}

// A topic with so many records, numbered in their values.
func filled(ctx context.Context, address, topic string) error {
	if err := makeTopic(ctx, address, topic); err != nil {
		return err
	}
	return more(ctx, address, topic, 0, groupRecords)
}

func more(ctx context.Context, address, topic string, from, to int) error {
	producer, err := connect(address, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer producer.Close()
	var records []*kgo.Record
	for number := from; number < to; number++ {
		records = append(records, &kgo.Record{
			Topic: topic, Partition: int32(number % partitions), Value: []byte(fmt.Sprint(number)),
		})
	}
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func member(address, group, topic string, options ...kgo.Opt) (*kgo.Client, error) {
	return connect(address, append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.DisableAutoCommit())...)
}

// Polls all members in turn until together they have read so many different values.
func readAll(ctx context.Context, count int, members ...*kgo.Client) (map[string]bool, error) {
	values := make(map[string]bool)
	for len(values) < count {
		for _, each := range members {
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			fetches := each.PollFetches(short)
			cancel()
			if ctx.Err() != nil {
				return nil, fmt.Errorf("after %d records: %w", len(values), ctx.Err())
			}
			fetches.EachRecord(func(record *kgo.Record) { values[string(record.Value)] = true })
		}
	}
	return values, same("count", len(values), count)
}

func sharing(ctx context.Context, address string) error {
	const name = "go-sharing"
	if err := filled(ctx, address, name); err != nil {
		return err
	}
	one, err := member(address, name, name)
	if err != nil {
		return err
	}
	defer one.Close()
	if _, err := readAll(ctx, groupRecords, one); err != nil {
		return err
	}
	if err := one.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	two, err := member(address, name, name)
	if err != nil {
		return err
	}
	defer two.Close()
	if err := waitForMembers(ctx, one, name, 2); err != nil {
		return err
	}
	if err := more(ctx, address, name, groupRecords, 2*groupRecords); err != nil {
		return err
	}
	if _, err := readAll(ctx, groupRecords, one, two); err != nil {
		return err
	}
	if err := first(one.CommitUncommittedOffsets(ctx), two.CommitUncommittedOffsets(ctx)); err != nil {
		return err
	}
	one.LeaveGroup()
	if err := more(ctx, address, name, 2*groupRecords, 3*groupRecords); err != nil {
		return err
	}
	_, err = readAll(ctx, groupRecords, two)
	return err
}

// Until the group is stable with so many members, while franz-go heartbeats by itself.
func waitForMembers(ctx context.Context, client *kgo.Client, group string, count int) error {
	for {
		described, err := kadm.NewClient(client).DescribeGroups(ctx, group)
		if err := first(err, described.Error()); err != nil {
			return err
		}
		if found := described[group]; found.State == "Stable" && len(found.Members) == count {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func goesOn(ctx context.Context, address string) error {
	const name = "go-goes-on"
	if err := filled(ctx, address, name); err != nil {
		return err
	}
	for round := range 2 {
		client, err := member(address, name, name)
		if err != nil {
			return err
		}
		values, err := readAll(ctx, groupRecords, client)
		if err == nil {
			err = first(same("its first", values[fmt.Sprint(round*groupRecords)], true), client.CommitUncommittedOffsets(ctx))
		}
		client.Close()
		if err := first(err, more(ctx, address, name, (round+1)*groupRecords, (round+2)*groupRecords)); err != nil {
			return err
		}
	}
	return nil
}

func adminGroups(ctx context.Context, address string) error {
	return withAdmin(address, func(_ *kgo.Client, admin *kadm.Client) error {
		const name = "go-admin-groups"
		if err := filled(ctx, address, name); err != nil {
			return err
		}
		client, err := member(address, name, name)
		if err != nil {
			return err
		}
		_, err = readAll(ctx, groupRecords, client)
		err = first(err, client.CommitUncommittedOffsets(ctx))
		client.Close()
		if err != nil {
			return err
		}
		lags, err := admin.Lag(ctx, name)
		if err := first(err, lags.Error(), same("lag", lags[name].Lag.Total(), 0), same("state", lags[name].State, "Empty")); err != nil {
			return err
		}
		var wanted kadm.Offsets
		wanted.AddOffset(name, 0, 5, -1)
		_, err = admin.CommitOffsets(ctx, name, wanted)
		offsets, fetchErr := admin.FetchOffsets(ctx, name)
		at, _ := offsets.Lookup(name, 0)
		if err := first(err, fetchErr, same("offset", at.At, 5)); err != nil {
			return err
		}
		listed, err := admin.ListGroups(ctx)
		_, isListed := listed[name]
		_, deleteErr := admin.DeleteGroup(ctx, name)
		return first(err, same("listed", isListed, true), deleteErr)
	})
}

func transactions(ctx context.Context, address string) error {
	const name = "go-transactions"
	if err := makeTopic(ctx, address, name); err != nil {
		return err
	}
	producer, err := connect(address, kgo.TransactionalID(name), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer producer.Close()
	for number := range 12 {
		if err := producer.BeginTransaction(); err != nil {
			return err
		}
		var records []*kgo.Record
		for index := range partitions {
			records = append(records, &kgo.Record{Topic: name, Partition: int32(index), Value: []byte(fmt.Sprint(number))})
		}
		if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
		if err := producer.EndTransaction(ctx, kgo.TransactionEndTry(number%3 != 0)); err != nil {
			return err
		}
	}
	read, err := consume(ctx, address, name, 8*partitions)
	if err != nil {
		return err
	}
	for _, record := range read {
		if value := string(record.Value); value == "0" || value == "3" || value == "6" || value == "9" {
			return fmt.Errorf("%s was aborted and is read", value)
		}
	}
	return nil
}

// Reads, writes what it read and commits its offsets in one transaction; every third one it aborts and does again.
func copies(ctx context.Context, address string) error {
	const source, target = "go-copier-in", "go-copier-out"
	if err := first(filled(ctx, address, source), makeTopic(ctx, address, target)); err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(address), kgo.TransactionalID("go-copier"),
		kgo.ConsumerGroup("go-copier"), kgo.ConsumeTopics(source), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer session.Close()
	for round, copied := 0, 0; copied < groupRecords; round++ {
		fetches := session.PollRecords(ctx, 20)
		if err := first(fetches.Err(), session.Begin()); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			session.Produce(ctx, &kgo.Record{Topic: target, Partition: record.Partition, Value: record.Value}, nil)
		}
		isCommitted, err := session.End(ctx, kgo.TransactionEndTry(round%3 != 0))
		if err != nil {
			return err
		}
		if isCommitted {
			copied += fetches.NumRecords()
		}
	}
	read, err := consume(ctx, address, target, groupRecords)
	if err != nil {
		return err
	}
	different := make(map[string]bool)
	for _, record := range read {
		different[string(record.Value)] = true
	}
	return same("different", len(different), groupRecords)
}
