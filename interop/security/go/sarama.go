package main

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

var saramaLibrary = library{"sarama", saramaProduce, saramaConsume}

// sarama leaves SCRAM to another library.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (client *scramClient) Begin(user, password, authorizationID string) error {
	made, err := client.hash.NewClient(user, password, authorizationID)
	if err != nil {
		return err
	}
	client.conversation = made.NewConversation()
	return nil
}

func (client *scramClient) Step(challenge string) (string, error) { return client.conversation.Step(challenge) }
func (client *scramClient) Done() bool                            { return client.conversation.Done() }

type fixedToken string

func (token fixedToken) Token() (*sarama.AccessToken, error) { return &sarama.AccessToken{Token: string(token)}, nil }

func saramaConfig(at endpoint) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 3
	config.Metadata.Retry.Max = 3
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if settings := tlsOf(at); settings != nil {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, settings
	}
	if at.Mechanism == "" {
		return config
	}
	config.Net.SASL.Enable = true
	config.Net.SASL.User, config.Net.SASL.Password = at.User, at.Password
	config.Net.SASL.Mechanism = sarama.SASLMechanism(at.Mechanism)
	switch at.Mechanism {
	case "SCRAM-SHA-256":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA256} }
	case "SCRAM-SHA-512":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA512} }
	case "OAUTHBEARER":
		config.Net.SASL.TokenProvider = fixedToken(at.Token)
	}
	return config
}

func saramaProduce(_ context.Context, at endpoint, topic string) error {
	producer, err := sarama.NewSyncProducer([]string{at.Address}, saramaConfig(at))
	if err != nil {
		return err
	}
	defer producer.Close()
	for i := range count {
		message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fmt.Sprintf("value%d", i))}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	return nil
}

type collector struct{ values chan string }

func (collector) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (collector) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (found collector) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message := <-claim.Messages():
			found.values <- string(message.Value)
		case <-session.Context().Done():
			return nil
		}
	}
}

func saramaConsume(ctx context.Context, at endpoint, topic string) ([]string, error) {
	group, err := sarama.NewConsumerGroup([]string{at.Address}, topic, saramaConfig(at))
	if err != nil {
		return nil, err
	}
	defer group.Close()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	found, failed := collector{make(chan string, count)}, make(chan error, 1)
	go func() { failed <- group.Consume(reading, []string{topic}, found) }()
	var values []string
	for len(values) < count {
		select {
		case value := <-found.values:
			values = append(values, value)
		case err := <-failed:
			return values, fmt.Errorf("the group ended: %v", err)
		case <-ctx.Done():
			return values, ctx.Err()
		}
	}
	return values, nil
}
