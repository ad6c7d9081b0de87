package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 3
	perCodec   = 300
)

func codecChecks() []check {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	var checks []check
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		codec := codecs[name]
		checks = append(checks, check{"kgo produces and consumes, codec " + name, func(ctx context.Context, address string) error {
			return roundTrip(ctx, address, "go-"+name, codec)
		}})
	}
	return append(checks,
		check{"kgo with acks of the leader only, not idempotent", leaderAcks},
		check{"kgo consumes what comes while it waits", follows},
	)
}

func value(number int) []byte {
	return bytes.Repeat([]byte("value"), number%40)
}

func roundTrip(ctx context.Context, address, topic string, codec kgo.CompressionCodec) error {
	start := time.Now().Truncate(time.Millisecond)
	producer, err := connect(address, kgo.ProducerBatchCompression(codec), kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := makeTopic(ctx, address, topic); err != nil {
		return err
	}
	var records []*kgo.Record
	for number := range perCodec {
		records = append(records, &kgo.Record{
			Topic: topic, Partition: int32(number % partitions), Timestamp: start.Add(time.Duration(number) * time.Millisecond),
			Key: []byte(fmt.Sprint(number)), Value: value(number),
			Headers: []kgo.RecordHeader{{Key: "number", Value: []byte(fmt.Sprint(number))}},
		})
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	read, err := consume(ctx, address, topic, perCodec)
	if err != nil {
		return err
	}
	for _, record := range read {
		number := int(record.Offset)*partitions + int(record.Partition)
		err := first(
			same("key", string(record.Key), fmt.Sprint(number)),
			same("value", string(record.Value), string(value(number))),
			same("timestamp", record.Timestamp.UnixMilli(), start.UnixMilli()+int64(number)),
			same("headers", len(record.Headers), 1),
			same("header", string(record.Headers[0].Value), fmt.Sprint(number)),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// So many records from the start of all partitions.
func consume(ctx context.Context, address, topic string, count int) ([]*kgo.Record, error) {
	offsets := make(map[int32]kgo.Offset)
	for partition := range int32(partitions) {
		offsets[partition] = kgo.NewOffset().AtStart()
	}
	consumer, err := connect(address, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxPartitionBytes(2000))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	var records []*kgo.Record
	for len(records) < count {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("after %d records: %w", len(records), err)
		}
		records = append(records, fetches.Records()...)
	}
	return records, same("count", len(records), count)
}

func leaderAcks(ctx context.Context, address string) error {
	producer, err := connect(address, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := makeTopic(ctx, address, "go-leader-acks"); err != nil {
		return err
	}
	for number := range 20 {
		result := producer.ProduceSync(ctx, &kgo.Record{Topic: "go-leader-acks", Value: []byte("v")})
		if err := first(result.FirstErr(), same("offset", result[0].Record.Offset, int64(number))); err != nil {
			return err
		}
	}
	return nil
}

func follows(ctx context.Context, address string) error {
	if err := makeTopic(ctx, address, "go-follows"); err != nil {
		return err
	}
	end := map[string]map[int32]kgo.Offset{"go-follows": {0: kgo.NewOffset().AtEnd()}}
	client, err := connect(address, kgo.ConsumePartitions(end), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(10*time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	client.PollFetches(short) // finds the end; its fetch then waits at the broker
	cancel()
	started := time.Now()
	sent := client.ProduceSync(ctx, &kgo.Record{Topic: "go-follows", Value: []byte("at last")})
	if err := sent.FirstErr(); err != nil {
		return err
	}
	fetches := client.PollFetches(ctx)
	if err := first(fetches.Err(), same("count", fetches.NumRecords(), 1)); err != nil {
		return err
	}
	if took := time.Since(started); took > 5*time.Second {
		return fmt.Errorf("it came only after %s", took)
	}
	return nil
}
