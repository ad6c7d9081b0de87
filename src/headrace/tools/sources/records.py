"""Reads the newest records of a topic."""

from __future__ import annotations

from collections.abc import Mapping

from headrace import Consumer, TopicPartition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.spark.options import shared_client_options

_TIMEOUT_MS = 10_000
_POLL_MS = 500
#: This many polls in a row without a record mean that the rest of the offsets holds no records.
_EMPTY_POLLS = 4


def newest_records(project: Project, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """About ``count`` records, evenly from the ends of all partitions."""
    config = client_config(project) | {"default.api.timeout.ms": str(_TIMEOUT_MS)}
    with Consumer(config=config, enable_auto_commit=False, auto_offset_reset="earliest") as consumer:
        places = [TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)]
        starts, ends = consumer.beginning_offsets(*places), consumer.end_offsets(*places)
        places = [place for place in places if ends[place] > starts[place]]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, max(starts[place], ends[place] - -(-count // len(places))))
        return _read(consumer, {place: ends[place] for place in places})


def _read(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> list[tuple[bytes | None, bytes | None]]:
    found: list[tuple[bytes | None, bytes | None]] = []
    empty_polls = 0
    while empty_polls < _EMPTY_POLLS and any(consumer.position(place) < end for place, end in ends.items()):
        records = consumer.poll(_POLL_MS)
        empty_polls = 0 if records else empty_polls + 1
        found += [(record.key, record.value) for record in records]
    return found


def client_config(project: Project) -> dict[str, object]:
    return {**shared_client_options(project.log_options), "bootstrap.servers": project.bootstrap}
