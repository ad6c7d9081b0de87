"""Builds the parts of a consumer and connects them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from typing import NamedTuple, Self

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.consumer.assigned_partitions import AssignedPartitions
from headrace.client.consumer.committed_offsets import GroupOffsets
from headrace.client.consumer.committer import Committer
from headrace.client.consumer.consumer_metrics import ConsumerMetrics
from headrace.client.consumer.fetch_positions import FetchPositions
from headrace.client.consumer.fetch_requests import FetchLimits
from headrace.client.consumer.fetcher import Fetcher
from headrace.client.consumer.offset_lookup import OffsetLookup
from headrace.client.consumer.poll_buffer import PollBuffer
from headrace.client.consumer.poll_loop import PollLoop
from headrace.client.consumer.subscription import Subscription
from headrace.client.membership.group_metrics import GroupMetrics
from headrace.client.metrics.connections import ConnectionMetrics
from headrace.client.metrics.registry import MetricsRegistry, new_registry
from headrace.client.notifier import Notifier
from headrace.client.offset_reset import parse_offset_reset
from headrace.client.telemetry.labels import consumer_labels
from headrace.client.telemetry.telemetry import Telemetry
from headrace.runtime.clock import Clock

#: How many full Fetch responses of a partition may wait for the user before the consumer fetches no more.
_BUFFERED_FETCHES = 4
#: Numbers for the client ids of consumers that were given none.
_numbers = count(1)


def with_client_id(config: ConsumerConfig) -> ConsumerConfig:
    """Returns the options with a ``client.id``, which is made of the group and a number if it is missing."""
    if config.client_id:
        return config
    name = "consumer" if config.group_id is None else f"consumer-{config.group_id}"
    return replace(config, client_id=f"{name}-{next(_numbers)}")


class ConsumerParts(NamedTuple):
    """The parts of one consumer."""

    cluster: Cluster
    fetcher: Fetcher
    partitions: AssignedPartitions
    poll_buffer: PollBuffer
    poll_loop: PollLoop
    subscription: Subscription
    committer: Committer
    lookup: OffsetLookup
    registry: MetricsRegistry
    metrics: ConsumerMetrics
    group_metrics: GroupMetrics
    telemetry: Telemetry

    @classmethod
    def build(cls, config: ConsumerConfig, clock: Clock | None, start: Callable[[], Awaitable[None]]) -> Self:
        """
        :param start: starts the consumer, if it is not started yet.
        """
        registry = new_registry("consumer", config, clock)
        connections = ConnectionMetrics(registry)
        group_metrics = GroupMetrics(registry)
        cluster = Cluster(config, clock=clock, metrics=connections)
        is_committed = config.isolation_level == "read_committed"
        positions = _positions(config, read_committed=is_committed)
        metrics = ConsumerMetrics(registry, connections, positions)
        if config.group_id is not None:
            group_metrics.publish(lambda: len(positions.assignment()))
        poll_buffer = PollBuffer(
            positions,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
            check_crcs=config.check_crcs,
        )
        notifier = Notifier()
        lookup = OffsetLookup(cluster, read_committed=is_committed, create=config.allow_auto_create_topics)
        offsets = None if config.group_id is None else GroupOffsets(cluster, config.group_id, group_metrics)
        committer = Committer(config, offsets, poll_buffer, cluster.clock, start)
        subscription = Subscription(
            cluster, config, positions, poll_buffer, group_metrics, commit=committer.commit_before_rebalance,
            notify=notifier.notify,
        )  # fmt: skip
        fetcher = Fetcher(
            cluster,
            positions,
            _limits(config, read_committed=is_committed),
            metrics,
            lookup=lookup,
            committed=None if offsets is None else offsets.fetch,
            refresh=subscription.refresh,
            notify=notifier.notify,
        )
        subscription.on_partitions_changed = fetcher.positions_changed
        poll_loop = PollLoop(cluster.clock, subscription, committer, fetcher, notifier, metrics)
        return cls(
            cluster,
            fetcher,
            AssignedPartitions(positions, poll_buffer, fetcher, notifier),
            poll_buffer,
            poll_loop,
            subscription,
            committer,
            lookup,
            registry,
            metrics,
            group_metrics,
            Telemetry(cluster, registry, lambda: consumer_labels(config, poll_loop.membership)),
        )


def _positions(config: ConsumerConfig, *, read_committed: bool) -> FetchPositions:
    return FetchPositions(
        parse_offset_reset(config.auto_offset_reset),
        read_committed=read_committed,
        buffer_bytes=config.max_partition_fetch_bytes * _BUFFERED_FETCHES,
        max_bytes=config.max_partition_fetch_bytes,
    )


def _limits(config: ConsumerConfig, *, read_committed: bool) -> FetchLimits:
    return FetchLimits(
        config.fetch_max_wait_ms, config.fetch_min_bytes, config.fetch_max_bytes, read_committed, config.client_rack
    )
