package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A client that produces, consumes and commits until standard input ends. Its metrics are what matters: it pushes them
// by itself (KIP-714). sarama has neither of the two requests.
func workUntilTold(address, topic string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	client, err := connect(address, kgo.ClientID("franz-go"), kgo.ConsumeTopics(topic), kgo.ConsumerGroup("franz-go"),
		kgo.DisableAutoCommit(), kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)))
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		record := &kgo.Record{Topic: topic, Value: []byte("v")}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("produce: %w", err)
		}
		short, done := context.WithTimeout(ctx, 50*time.Millisecond)
		client.PollFetches(short)
		done()
		if err := client.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	return nil
}
