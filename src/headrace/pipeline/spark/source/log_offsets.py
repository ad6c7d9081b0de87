"""Asks the brokers where the partitions of the log begin and end. The driver needs that to plan.

A consumer is opened on first use and kept, because a stream asks again before every micro-batch. With
``kafka.isolation.level=read_committed`` the end of a partition is its last stable offset.

If the log no longer has records that a query needs, :meth:`LogOffsets.lost` raises ``DataLost``, or logs a warning with
``failOnDataLoss=false``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from logging import getLogger
from typing import TypeVar
from uuid import UUID

from headrace.client.consumer.sync_consumer import Consumer
from headrace.client.errors import BrokerError, BrokerUnreachable, KafkaTimeout, UnknownTopic
from headrace.client.types import TopicPartition
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.spark.options import BadOption
from headrace.pipeline.spark.source.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    AtTimes,
    Everywhere,
    OffsetSpec,
    SourceOptions,
)

logger = getLogger(__name__)
_T = TypeVar("_T")
Offsets = dict[TopicPartition, int]


def consumer_for(options: SourceOptions, **defaults: object) -> Consumer:
    """A consumer for explicit partitions and offsets, which commits nothing."""
    given = {name.replace(".", "_") for name in options.client}
    more = {name: value for name, value in defaults.items() if name not in given}
    return Consumer(config=options.client, auto_offset_reset="none", enable_auto_commit=False, **more)


def report_loss(what: str, *, is_error: bool) -> None:
    """
    :raises DataLost: if ``is_error``; otherwise a warning is logged.
    """
    if is_error:
        raise DataLost(f"{what}; set failOnDataLoss to false to continue without these records")
    logger.warning("%s; continuing without these records, because failOnDataLoss is false", what)


class LogOffsets:
    def __init__(self, options: SourceOptions, *, sleep: Callable[[float], object] = time.sleep) -> None:
        self._options = options
        self._sleep = sleep
        self._consumer: Consumer | None = None
        self._topic_ids: dict[str, UUID | None] = {}

    def close(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            consumer.close()

    def lost(self, what: str) -> None:
        report_loss(what, is_error=self._options.fail_on_data_loss)

    # -- what there is

    def partitions(self, *, skip_missing: bool = False) -> list[TopicPartition]:
        """The partitions that the options select, sorted.

        :param skip_missing: whether to leave out topics and partitions that do not exist.
        :raises UnknownTopic: if a topic or partition does not exist, unless ``skip_missing``.
        :raises DataLost: if a topic was deleted and created again since the last call.
        """
        found = self._ask(lambda consumer: consumer.list_topics())
        options = self._options
        there = {one: info for one, info in found.items() if info.partitions}
        names = set(options.topics) | {one.topic for one in options.partitions}
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            names = {one for one, info in there.items() if pattern.fullmatch(one) and not info.is_internal}
        for name in sorted(names - there.keys()):
            if not skip_missing:
                raise UnknownTopic(message=f"there is no topic {name!r} at {options.client['bootstrap.servers']}")
        self._compare_ids({name: there[name].id for name in sorted(names & there.keys())})
        known = {TopicPartition(name, one.partition) for name in names & there.keys() for one in there[name].partitions}
        wanted = set(options.partitions) or known
        for partition in sorted(wanted - known):
            if not skip_missing:
                raise UnknownTopic(message=f"there is no partition {partition}: {partition.topic} has fewer partitions")
        return sorted(wanted & known)

    def _compare_ids(self, topic_ids: Mapping[str, UUID | None]) -> None:
        for name, topic_id in topic_ids.items():
            if self._topic_ids.get(name, topic_id) != topic_id:
                self.lost(f"the topic {name!r} was deleted and created again")
        self._topic_ids.update(topic_ids)

    @property
    def topic_ids(self) -> Mapping[str, UUID | None]:
        """The ids of the topics as of the last call of ``partitions``; None from brokers without topic ids."""
        return self._topic_ids

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._at(partitions, lambda consumer, wanted: consumer.beginning_offsets(*wanted))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._at(partitions, lambda consumer, wanted: consumer.end_offsets(*wanted))

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """For each partition, the offset of the first record at or after the time; None if there is none."""
        if not times_ms:
            return {}
        found = self._ask(lambda consumer: consumer.offsets_for_times(times_ms))
        return {partition: None if one is None else one.offset for partition, one in found.items()}

    def _at(
        self, partitions: Iterable[TopicPartition], ask: Callable[[Consumer, list[TopicPartition]], Offsets]
    ) -> Offsets:
        wanted = list(partitions)
        return self._ask(lambda consumer: ask(consumer, wanted)) if wanted else {}

    def _ask(self, question: Callable[[Consumer], _T]) -> _T:
        for attempt in range(self._options.lookup_retries + 1):
            try:
                if self._consumer is None:
                    self._consumer = consumer_for(self._options)
                return question(self._consumer)
            except (BrokerUnreachable, KafkaTimeout, BrokerError) as error:
                may_pass = not isinstance(error, BrokerError) or error.is_retriable
                if not may_pass or isinstance(error, UnknownTopic) or attempt == self._options.lookup_retries:
                    raise
                logger.warning("the log did not answer (%s); trying again", error)
                self.close()
                self._sleep(self._options.lookup_interval_ms / 1000)
        raise AssertionError("the last attempt returns or raises")

    # -- what is asked for

    def resolve(self, spec: OffsetSpec, partitions: list[TopicPartition], *, is_start: bool) -> Offsets:
        """The offset of each partition.

        :raises BadOption: if the options do not name all partitions, or a partition has no record at or after the time.
        """
        if isinstance(spec, Everywhere):
            return self.earliest(partitions) if spec.offset == EARLIEST_OFFSET else self.latest(partitions)
        if isinstance(spec, AtOffsets):
            return self._at_offsets(spec, partitions, is_start=is_start)
        return self._at_spec_times(spec, partitions, is_start=is_start)

    def _at_offsets(self, spec: AtOffsets, partitions: list[TopicPartition], *, is_start: bool) -> Offsets:
        name = "startingOffsets" if is_start else "endingOffsets"
        _check_same(name, spec.offsets, partitions)
        offsets = dict(spec.offsets)
        offsets |= self.earliest(partition for partition in partitions if offsets[partition] == EARLIEST_OFFSET)
        offsets |= self.latest(partition for partition in partitions if offsets[partition] == LATEST_OFFSET)
        return offsets

    def _at_spec_times(self, spec: AtTimes, partitions: list[TopicPartition], *, is_start: bool) -> Offsets:
        name = "startingOffsetsByTimestamp" if is_start else "endingOffsetsByTimestamp"
        if spec.everywhere_ms is None:
            _check_same(name, spec.times_ms, partitions)
            times_ms = dict(spec.times_ms)
        else:
            times_ms = dict.fromkeys(partitions, spec.everywhere_ms)
        found = self.at_times(times_ms)
        missing = [partition for partition, offset in found.items() if offset is None]
        if is_start and missing and not self._options.is_latest_without_match:
            raise BadOption(
                f"{missing[0]} has no record at or after {times_ms[missing[0]]}; set "
                "startingOffsetsByTimestampStrategy to latest to begin at its end"
            )
        return {partition: offset for partition, offset in found.items() if offset is not None} | self.latest(missing)


def _check_same(name: str, given: Mapping[TopicPartition, int], partitions: list[TopicPartition]) -> None:
    """Checks that the option names exactly these partitions, as Spark's connector does."""
    for partition in sorted(set(partitions) - given.keys()):
        raise BadOption(f"{name} does not have {partition}; name all partitions: -1 is the latest offset, -2 the first")
    for partition in sorted(given.keys() - set(partitions)):
        raise BadOption(f"{name} has {partition}, which is not read")
