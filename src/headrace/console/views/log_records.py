"""Reads a few records of the project's log: the newest ones before given offsets.

The client has the options of ``headrace.toml``, and joins no group. Reading ends after two seconds, whatever
is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from headrace.client.consumer.sync_consumer import Consumer
from headrace.client.types import ConsumedRecord, TopicPartition
from headrace.console.protection.audit import HIDDEN
from headrace.console.views.model import LogRecord, PartitionOffset
from headrace.pipeline.project.settings import Project

_READ_SECONDS = 2.0
_TIMEOUT_MS = 2_000
_MOST_PARTITIONS = 50
_LONGEST = 300


def newest_of_topic(project: Project, topics: Iterable[str], each: int, masks: Iterable[str]) -> tuple[LogRecord, ...]:
    """The newest records of each partition of topics. A topic that does not exist has none."""
    with _consumer(project) as consumer:
        known = consumer.list_topics()
        places = [TopicPartition(name, part.partition) for name in topics if name in known
                  for part in known[name].partitions]  # fmt: skip
        ends = consumer.end_offsets(*places[:_MOST_PARTITIONS]) if places else {}
        return _read(consumer, ends, each, masks)


def newest_before(
    project: Project, offsets: Iterable[PartitionOffset], each: int, masks: Iterable[str]
) -> tuple[LogRecord, ...]:
    """The records of each partition that end at an offset."""
    wanted = {TopicPartition(at.topic, at.partition): at.offset for at in list(offsets)[:_MOST_PARTITIONS]}
    with _consumer(project) as consumer:
        return _read(consumer, wanted, each, masks)


def _consumer(project: Project) -> Consumer:
    config = {**project.log_options, "bootstrap.servers": project.bootstrap, "client.id": "headrace-console-views"}
    config |= {"default.api.timeout.ms": str(_TIMEOUT_MS), "request.timeout.ms": str(_TIMEOUT_MS)}
    return Consumer(config=config, enable_auto_commit=False, auto_offset_reset="none")


def _read(
    consumer: Consumer, ends: Mapping[TopicPartition, int], each: int, masks: Iterable[str]
) -> tuple[LogRecord, ...]:
    if not ends:
        return ()
    firsts = consumer.beginning_offsets(*ends)
    starts = {at: max(firsts[at], end - each) for at, end in ends.items() if end > firsts[at]}
    consumer.assign(starts)
    for at, start in starts.items():
        consumer.seek(at, start)
    found: list[LogRecord] = []
    left = dict(starts)
    names = tuple(name.lower() for name in masks)
    until_s = time.monotonic() + _READ_SECONDS
    while left and time.monotonic() < until_s:
        for record in consumer.poll(timeout_ms=200):
            at = TopicPartition(record.topic, record.partition)
            if record.offset < ends[at]:
                found.append(_shown(record, names))
            if record.offset + 1 >= ends[at]:
                left.pop(at, None)
    return tuple(sorted(found, key=lambda record: (-record.time_ms, record.topic, record.partition, -record.offset)))


def _shown(record: ConsumedRecord, masks: tuple[str, ...]) -> LogRecord:
    headers = tuple((name, _text(value, masks)) for name, value in record.headers)
    return LogRecord(
        record.topic, record.partition, record.offset, record.timestamp_ms,
        _text(record.key, masks), _text(record.value, masks), headers,
    )  # fmt: skip


def _text(data: bytes | None, masks: tuple[str, ...]) -> str:
    """Bytes as a page shows them. With masks, bytes that may contain a masked field are hidden whole."""
    text = "" if data is None else bytes(data).decode("utf-8", errors="replace")
    if any(mask in text.lower() for mask in masks):
        return HIDDEN
    return text[:_LONGEST] + "…" if len(text) > _LONGEST else text
