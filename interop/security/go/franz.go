package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var franz = library{"franz-go", franzProduce, franzConsume}

func franzClient(at endpoint, more ...kgo.Opt) (*kgo.Client, error) {
	options := append(more, kgo.SeedBrokers(at.Address), kgo.AllowAutoTopicCreation(), kgo.RetryTimeout(checkLimit/4))
	if settings := tlsOf(at); settings != nil {
		options = append(options, kgo.DialTLSConfig(settings))
	}
	switch at.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: at.User, Pass: at.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: at.User, Pass: at.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: at.User, Pass: at.Password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: at.Token}.AsMechanism()))
	}
	return kgo.NewClient(options...)
}

func franzProduce(ctx context.Context, at endpoint, topic string) error {
	client, err := franzClient(at)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	for i := range count {
		record := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "value%d", i)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func franzConsume(ctx context.Context, at endpoint, topic string) ([]string, error) {
	client, err := franzClient(at, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var values []string
	for len(values) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return values, err
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	return values, nil
}
