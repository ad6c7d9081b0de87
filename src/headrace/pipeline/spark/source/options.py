"""The options of the source: the names and meanings of Spark's Kafka connector, parsed and checked.

::

    topics          subscribe, subscribePattern, assign                     exactly one of them
    start           startingTimestamp, startingOffsetsByTimestamp, startingOffsets     the first one in use counts
    end             endingTimestamp, endingOffsetsByTimestamp, endingOffsets           the same; not for streams
    amount          minPartitions, maxRecordsPerPartition; streams: maxOffsetsPerTrigger, minOffsetsPerTrigger,
                    maxTriggerDelay
    others          failOnDataLoss, includeHeaders, groupIdPrefix, kafkaConsumer.pollTimeoutMs,
                    fetchOffset.numRetries, fetchOffset.retryIntervalMs, startingOffsetsByTimestampStrategy
    Headrace's own  commitGroup: a consumer group to which the progress of the stream is committed
                    workerLogin: how tasks log in, token, any or password (spark/worker_login.py)
    kafka.*         options of Headrace's consumer (docs/client-options.md); kafka.bootstrap.servers is required

An unknown name or an invalid value raises ``BadOption``.

Start and end are each an :data:`OffsetSpec`. In JSON, ``{"topic": {"0": 23, "1": -2}}``, -1 is the end and -2 the start
of a partition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from headrace.client.config import ConsumerConfig
from headrace.client.types import TopicPartition
from headrace.pipeline.progress.offsets import by_topic
from headrace.pipeline.progress.ranges import OffsetRange
from headrace.pipeline.spark.options import BadOption, OptionReader
from headrace.pipeline.spark.worker_login import WorkerLogin, parse_worker_login, without_login

LATEST_OFFSET: Final = -1
EARLIEST_OFFSET: Final = -2

_NAMES = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
    "failOnDataLoss", "includeHeaders", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "commitGroup", "workerLogin",
)  # fmt: skip
_REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "use commitGroup",
    "key.deserializer": "keys are binary: cast the column",
    "value.deserializer": "values are binary: cast the column",
    "interceptor.classes": "records cannot be intercepted",
}
_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


@dataclass(frozen=True)
class Everywhere:
    """The start or the end of all partitions: ``EARLIEST_OFFSET`` or ``LATEST_OFFSET``."""

    offset: int


@dataclass(frozen=True)
class AtOffsets:
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTimes:
    """The first record at or after a time, of all partitions or of these."""

    everywhere_ms: int | None = None
    times_ms: Mapping[TopicPartition, int] = field(default_factory=dict)


OffsetSpec = Everywhere | AtOffsets | AtTimes


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    #: The options of Headrace's consumer, by Kafka's names. Some are secrets.
    client: Mapping[str, str] = field(repr=False)
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    start: OffsetSpec = Everywhere(EARLIEST_OFFSET)
    end: OffsetSpec = Everywhere(LATEST_OFFSET)
    #: If a partition has no record at or after the time: its end (True), or an error (False).
    is_latest_without_match: bool = False
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    poll_timeout_ms: int = 120_000
    lookup_retries: int = 3
    lookup_interval_ms: int = 10
    commit_group: str | None = None
    worker_login: WorkerLogin = WorkerLogin.TOKEN

    def for_workers(self) -> SourceOptions:
        """The same options without the login of the driver."""
        return replace(self, client=without_login(self.client))

    def with_login(self, login: Mapping[str, str]) -> SourceOptions:
        return replace(self, client={**self.client, **login})

    @classmethod
    def parse(cls, given: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
        """
        :raises BadOption: with the name of the option and what it should be.
        """
        options = OptionReader(given, _NAMES)
        topics, pattern, partitions = _which(options)
        start, end = _bounds(options, is_stream=is_stream)
        _check_agreement(options, is_stream=is_stream)
        strategy = options.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
        minimum, maximum = options.count("minOffsetsPerTrigger"), options.count("maxOffsetsPerTrigger")
        if minimum is not None and maximum is not None and minimum > maximum:
            raise BadOption(f"minOffsetsPerTrigger ({minimum}) is more than maxOffsetsPerTrigger ({maximum})")
        return cls(
            client=_client_options(options),
            topics=topics,
            pattern=pattern,
            partitions=partitions,
            start=start,
            end=end,
            is_latest_without_match=strategy == "latest",
            max_offsets_per_trigger=maximum,
            min_offsets_per_trigger=minimum,
            max_trigger_delay_ms=options.duration_ms("maxTriggerDelay", cls.max_trigger_delay_ms),
            min_partitions=options.count("minPartitions"),
            max_records_per_partition=options.count("maxRecordsPerPartition"),
            fail_on_data_loss=options.flag("failOnDataLoss", True),
            include_headers=options.flag("includeHeaders", False),
            poll_timeout_ms=options.count_or("kafkaConsumer.pollTimeoutMs", cls.poll_timeout_ms),
            lookup_retries=options.count_or("fetchOffset.numRetries", cls.lookup_retries, least=0),
            lookup_interval_ms=options.count_or("fetchOffset.retryIntervalMs", cls.lookup_interval_ms, least=0),
            commit_group=options.text("commitGroup"),
            worker_login=parse_worker_login(options),
        )


def options_for(ranges: Sequence[OffsetRange]) -> dict[str, str]:
    """Options with which ``spark.read`` reads exactly these ranges, one per partition."""
    starts = by_topic({one.topic_partition: one.start for one in ranges})
    ends = by_topic({one.topic_partition: one.end for one in ranges})
    return {
        "assign": json.dumps({topic: list(partitions) for topic, partitions in ends.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }


def _which(options: OptionReader) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    subscribe, pattern, assign = (options.text(name) for name in ("subscribe", "subscribePattern", "assign"))
    given = [value for value in (subscribe, pattern, assign) if value is not None]
    if len(given) != 1:
        raise BadOption("set exactly one of subscribe, subscribePattern and assign, to choose the topics to read")
    if subscribe is not None:
        return tuple(sorted({topic for one in subscribe.split(",") if (topic := one.strip())})), None, ()
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadOption(f"subscribePattern = {pattern!r} is not a regular expression: {error}") from None
        return (), pattern, ()
    assert assign is not None
    return (), None, _assigned(assign)


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    wanted = 'assign takes JSON such as {"topic": [0, 1]}'
    found = _json_object(text, wanted)
    partitions: set[TopicPartition] = set()
    for topic, indexes in found.items():
        if not isinstance(indexes, list) or not all(type(one) is int and one >= 0 for one in indexes):
            raise BadOption(f"{wanted}, not {text}")
        partitions |= {TopicPartition(topic, index) for index in indexes}
    if not partitions:
        raise BadOption(f"{wanted}, not {text}")
    return tuple(sorted(partitions))


def _bounds(options: OptionReader, *, is_stream: bool) -> tuple[OffsetSpec, OffsetSpec]:
    start = _spec(options, "starting") or Everywhere(LATEST_OFFSET if is_stream else EARLIEST_OFFSET)
    end = _spec(options, "ending") or Everywhere(LATEST_OFFSET)
    if not is_stream and _mentions(start, LATEST_OFFSET):
        raise BadOption(
            "startingOffsets: a batch that begins at the latest offset would be empty; the earliest offset is -2"
        )
    if _mentions(end, EARLIEST_OFFSET):
        raise BadOption(
            "endingOffsets: a batch that ends at the earliest offset would be empty; the latest offset is -1"
        )
    return start, end


def _mentions(spec: OffsetSpec, offset: int) -> bool:
    if isinstance(spec, Everywhere):
        return spec.offset == offset
    return isinstance(spec, AtOffsets) and offset in spec.offsets.values()


def _spec(options: OptionReader, prefix: str) -> OffsetSpec | None:
    """The first of the three options that is set, in the order of Spark's connector."""
    if (everywhere_ms := options.count(f"{prefix}Timestamp", least=0)) is not None:
        return AtTimes(everywhere_ms)
    name = f"{prefix}OffsetsByTimestamp"
    if (text := options.text(name)) is not None:
        return AtTimes(times_ms=offsets_from_json(name, text, least=0))
    name = f"{prefix}Offsets"
    if (text := options.text(name)) is None:
        return None
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Everywhere(EARLIEST_OFFSET if word == "earliest" else LATEST_OFFSET)
    return AtOffsets(offsets_from_json(name, text, least=EARLIEST_OFFSET))


def offsets_from_json(name: str, text: str, *, least: int) -> dict[TopicPartition, int]:
    wanted = f'{name} takes JSON such as {{"topic": {{"0": 23, "1": 42}}}}'
    if name in ("startingOffsets", "endingOffsets"):
        wanted = f"{name} takes earliest, latest, or JSON such as {{'topic': {{'0': 23, '1': -1}}}}".replace("'", '"')
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json_object(text, wanted).items():
        if not isinstance(numbers, dict):
            raise BadOption(f"{wanted}, not {text}")
        for index, number in numbers.items():
            if not index.isdecimal() or type(number) is not int or number < least:
                raise BadOption(f"{wanted}; in {topic!r}, {index!r}: {number!r} is invalid")
            found[TopicPartition(topic, int(index))] = number
    return found


def _json_object(text: str, wanted: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadOption(f"{wanted}; this is not JSON ({error}): {text}") from None
    if not isinstance(found, dict):
        raise BadOption(f"{wanted}, not {text}")
    return found


def _check_agreement(options: OptionReader, *, is_stream: bool) -> None:
    if is_stream:
        for name in _ENDING:
            if options.text(name) is not None:
                raise BadOption(
                    f"{name} is for spark.read only: a stream has no end; use the trigger availableNow instead"
                )
    elif options.text("commitGroup") is not None:
        raise BadOption("commitGroup is for streams only: a batch has no progress to commit")


def _client_options(options: OptionReader) -> dict[str, str]:
    client = options.kafka()
    for name, advice in _REFUSED.items():
        if name in client:
            raise BadOption(f"kafka.{name} cannot be set: {advice}")
    if (prefix := options.text("groupIdPrefix")) is not None and "group.id" not in client:
        client["group.id"] = f"{prefix}-{uuid4()}"
    client.setdefault("allow.auto.create.topics", "false")
    try:
        ConsumerConfig.load({**client, "auto.offset.reset": "none", "enable.auto.commit": "false"})
    except (TypeError, ValueError) as error:
        raise BadOption(f"kafka.*: {error}") from None
    return client
