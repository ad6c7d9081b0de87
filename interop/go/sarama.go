package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
)

var saramaChecks = []check{
	{"sarama sets, describes and removes client quotas", saramaQuotas},
	{"sarama is told which client quotas are wrong", saramaWrongQuotas},
	{"sarama waits when it is throttled, and loses nothing", saramaThrottled},
	{"sarama is told that features have fixed levels, and that there is no quorum", saramaFeatures},
}

const (
	producerRate = "producer_byte_rate"
	consumerRate = "consumer_byte_rate"
	// A broker allows ten seconds' worth at once. A tenth more takes a second.
	throttledRate    = 100_000
	throttledRecords = 13
	describeQuorum   = 55
)

func saramaConfig(clientID string) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = clientID
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	return config
}

func withSaramaAdmin(address string, body func(admin sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin([]string{address}, saramaConfig("sarama-admin"))
	if err != nil {
		return err
	}
	defer admin.Close()
	return body(admin)
}

func quotaOfClient(name string) []sarama.QuotaEntityComponent {
	return []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Name: name}}
}

func setQuota(admin sarama.ClusterAdmin, client, key string, limit float64) error {
	return admin.AlterClientQuotas(quotaOfClient(client), sarama.ClientQuotasOp{Key: key, Value: limit}, false)
}

func removeQuota(admin sarama.ClusterAdmin, client, key string) error {
	return admin.AlterClientQuotas(quotaOfClient(client), sarama.ClientQuotasOp{Key: key, Remove: true}, false)
}

func saramaQuotas(_ context.Context, address string) error {
	return withSaramaAdmin(address, func(admin sarama.ClusterAdmin) error {
		client := []sarama.QuotaFilterComponent{
			{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Match: "sarama-limited"},
		}
		if err := setQuota(admin, "sarama-limited", producerRate, 1e9); err != nil {
			return err
		}
		found, err := admin.DescribeClientQuotas(client, true)
		if err := first(err, same("entities", len(found), 1)); err != nil {
			return err
		}
		if err := same("limit", found[0].Values[producerRate], 1e9); err != nil {
			return err
		}
		validated := admin.AlterClientQuotas(quotaOfClient("sarama-limited"), sarama.ClientQuotasOp{Key: producerRate, Value: 5e9}, true)
		if err := first(validated, removeQuota(admin, "sarama-limited", producerRate)); err != nil {
			return err
		}
		found, err = admin.DescribeClientQuotas(client, true)
		return first(err, same("entities", len(found), 0))
	})
}

func saramaWrongQuotas(_ context.Context, address string) error {
	return withSaramaAdmin(address, func(admin sarama.ClusterAdmin) error {
		for _, limit := range []float64{-1, 0, 0.5, 1e19} {
			if err := setQuota(admin, "sarama-wrong", producerRate, limit); err == nil {
				return fmt.Errorf("a producer may have %v bytes per second", limit)
			}
		}
		if err := setQuota(admin, "sarama-wrong", "nonsense", 1); err == nil || !strings.Contains(err.Error(), "nonsense") {
			return fmt.Errorf("an unknown quota: %v", err)
		}
		found, err := admin.DescribeClientQuotas(nil, false)
		if err != nil {
			return err
		}
		for _, each := range found {
			for _, component := range each.Entity {
				if component.Name == "sarama-wrong" {
					return fmt.Errorf("there is %v", each)
				}
			}
		}
		return nil
	})
}

func saramaThrottled(_ context.Context, address string) error {
	return withSaramaAdmin(address, func(admin sarama.ClusterAdmin) error {
		err := first(setQuota(admin, "sarama-throttled", producerRate, throttledRate),
			setQuota(admin, "sarama-throttled", consumerRate, throttledRate))
		if err != nil {
			return err
		}
		defer removeQuota(admin, "sarama-throttled", producerRate)
		defer removeQuota(admin, "sarama-throttled", consumerRate)
		return first(produceThrottled(address), consumeThrottled(address))
	})
}

func produceThrottled(address string) error {
	config := saramaConfig("sarama-throttled")
	producer, err := sarama.NewSyncProducer([]string{address}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	started := time.Now()
	for range throttledRecords {
		message := &sarama.ProducerMessage{Topic: "sarama-throttled", Value: sarama.ByteEncoder(make([]byte, 100_000))}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	return wasThrottled("producer", config, time.Since(started))
}

func consumeThrottled(address string) error {
	config := saramaConfig("sarama-throttled")
	consumer, err := sarama.NewConsumer([]string{address}, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	started := time.Now()
	partition, err := consumer.ConsumePartition("sarama-throttled", 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	for at := range throttledRecords {
		select {
		case message := <-partition.Messages():
			if err := same("offset", message.Offset, int64(at)); err != nil {
				return err
			}
		case <-time.After(checkLimit):
			return fmt.Errorf("only %d records within %s", at, checkLimit)
		}
	}
	return wasThrottled("consumer", config, time.Since(started))
}

// The time that the client took, and the throttle times that it reports.
func wasThrottled(who string, config *sarama.Config, took time.Duration) error {
	longest := int64(0)
	config.MetricRegistry.Each(func(name string, metric any) {
		if histogram, ok := metric.(metrics.Histogram); ok && strings.HasPrefix(name, "throttle-time-in-ms") {
			longest = max(longest, histogram.Max())
		}
	})
	if took < time.Second || longest == 0 {
		return fmt.Errorf("the %s took %s, and was throttled for %d ms", who, took, longest)
	}
	return nil
}

func saramaFeatures(_ context.Context, address string) error {
	return withSaramaAdmin(address, func(admin sarama.ClusterAdmin) error {
		if _, err := admin.UpdateFeatures([]sarama.FeatureUpdate{{Feature: "group.version", MaxVersionLevel: 1}}); err != nil {
			return err
		}
		_, err := admin.UpdateFeatures([]sarama.FeatureUpdate{{Feature: "metadata.version", MaxVersionLevel: 20}})
		if !errors.Is(err, sarama.ErrInvalidUpdateVersion) || !strings.Contains(err.Error(), "is not a feature") {
			return fmt.Errorf("another feature: %v", err)
		}
		broker, err := admin.Controller()
		if err != nil {
			return err
		}
		// sarama has no request for the quorum. A program that sends one looks here first.
		versions, err := broker.ApiVersions(&sarama.ApiVersionsRequest{})
		if err != nil {
			return err
		}
		hasQuorum := slices.ContainsFunc(versions.ApiKeys, func(each sarama.ApiVersionsResponseKey) bool {
			return each.ApiKey == describeQuorum
		})
		return same("DescribeQuorum is advertised", hasQuorum, false)
	})
}
