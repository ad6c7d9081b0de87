"""Looks at the newest records of all sources every 15 seconds, and notes how they differ from the schemas.

A column that may be NULL is NULL if the records no longer have its field. The view goes on, and nothing shows that its
answer is now another one. So this watch looks at what was written lately, whatever the versions have read so far, and
however they are kept up to date::

    records since the last look, the newest 1,000 per topic  ->  which columns have a value (``record_fields``)
        ->  counts (``field_counts``)  ->  changes  ->  the serving database, the log, the metrics

A look costs the same for a topic with a thousand records per second as for one with a million, and nothing in the
micro-batches. Of a fast topic it sees a sample: a change that begins and ends between two looks may not be seen.
Versions that read the same topics with the same schema share a look. The counts survive a restart.

If the log or a registry does not answer, the next look tries again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from logging import getLogger
from typing import Any

from headrace.client.consumer.sync_consumer import Consumer
from headrace.client.errors import HeadraceError
from headrace.client.types import ConsumedRecord, TopicPartition
from headrace.pipeline.decoding.registry import RegistryUnavailable
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.serving.catalog import DesiredState, Version, VersionKey
from headrace.pipeline.serving.catalog_tables.schema_changes import Place, SchemaChange, SchemaChanges, VersionChanges
from headrace.pipeline.source_watch.field_counts import FieldCounts, Fields
from headrace.pipeline.source_watch.record_fields import ReadFields, fields_reader, is_exact
from headrace.pipeline.spark.options import short_client_options
from headrace.pipeline.version.context import RunContext

logger = getLogger("headrace.views")

EVERY_S = 15.0
#: How many records of a topic one look reads at most, and how many bytes of all topics of a source.
MAX_RECORDS = 1_000
_MAX_BYTES = 8 << 20
_FETCH_BYTES = 1 << 20
_TIMEOUT_MS = 5_000
_POLL_MS = 500
#: This many polls in a row without a record mean that the rest of the offsets holds no records.
_EMPTY_POLLS = 4


@dataclass
class _Watched:
    """A source as some versions read it.

    :ivar versions: the versions that read it.
    :ivar next_offsets: where the next look begins, by partition.
    """

    source: SourceDefinition
    read_fields: ReadFields
    versions: list[VersionKey] = field(default_factory=list)
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    topics: dict[str, FieldCounts] = field(default_factory=dict)

    def changes(self) -> list[SchemaChange]:
        return [change for counts in self.topics.values() for change in counts.changes()]

    def counts_of(self, topic: str) -> FieldCounts:
        if topic not in self.topics:
            self.topics[topic] = FieldCounts(self.source.name, topic, is_exact(self.source.decode))
        return self.topics[topic]


class SourceWatch:
    """One thread calls its methods."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._stored = SchemaChanges(context.database)
        self._watched: dict[str, _Watched] = {}
        self._reported: set[tuple[str, ...]] = set()
        self._consumer: Consumer | None = None
        #: By what was looked at, the failure of the last look.
        self._failures: dict[str, str] = {}

    def run(self, stop: threading.Event) -> None:
        """Looks again and again until ``stop`` is set."""
        try:
            while not stop.wait(EVERY_S):
                self.try_to_look()
        finally:
            self.close()

    def close(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            with suppress(HeadraceError):
                consumer.close()

    def try_to_look(self) -> None:
        """As ``look``. Views do not depend on the watch, so no failure of it ends the process."""
        try:
            self.look()
        except Exception as error:  # noqa: BLE001  the views go on, and the next look tries again
            self._failed("all sources", error)

    def _failed(self, what: str, error: Exception) -> None:
        """Logs a failure, unless the look before failed in the same way."""
        self.close()
        if self._failures.get(what) != str(error):
            logger.info("%s: the newest records were not compared with the schema: %s", what, error)
        self._failures[what] = str(error)

    def look(self) -> None:
        """Looks at the newest records of each source once, and stores and logs what changed."""
        self._follow(each for each in self._context.catalog.versions() if each.desired_state is DesiredState.RUN)
        looked = [each for each in self._watched.values() if self._has_looked_at(each)]
        by_version: dict[VersionKey, list[_Watched]] = {}
        for each in self._watched.values():
            for key in each.versions:
                by_version.setdefault(key, []).append(each)
        changed = {key for each in looked for key in each.versions}
        if changed:
            self._stored.write({key: _together(by_version[key]) for key in changed})
        for key, sources in by_version.items():
            missing = sum(change.is_missing for each in sources for change in each.changes())
            self._context.metrics.of(*key).missing_columns = missing
        self._log_changes()

    # ---------------------------------------------------------------------------------------------- what is watched

    def _follow(self, versions: Iterable[Version]) -> None:
        """Watches exactly the sources of these versions."""
        for each in self._watched.values():
            each.versions.clear()
        stored: Mapping[VersionKey, VersionChanges] | None = None
        for version in versions:
            for source in ViewDefinition.from_dict(version.definition).inputs:
                identity = json.dumps([source.essence, source.decode.registry])
                if identity not in self._watched:
                    read_fields = fields_reader(source.decode)
                    if read_fields is None:
                        continue
                    stored = self._stored.read() if stored is None else stored
                    self._watched[identity] = _Watched(source, read_fields)
                    self._continue(self._watched[identity], stored.get(version.key))
                self._watched[identity].versions.append(version.key)
        self._watched = {identity: each for identity, each in self._watched.items() if each.versions}

    def _continue(self, watched: _Watched, stored: VersionChanges | None) -> None:
        """Continues from the counts of an earlier process."""
        known: Mapping[str, Any] = {} if stored is None else stored.counts.get(watched.source.name, {})
        for topic, values in known.get("topics", {}).items():
            watched.counts_of(topic).load(values)
        for topic, partition, offset in known.get("next_offsets", ()):
            watched.next_offsets[TopicPartition(topic, partition)] = offset

    # ------------------------------------------------------------------------------------------------------- a look

    def _has_looked_at(self, watched: _Watched) -> bool:
        """Whether there were new records. The failure of one source does not affect the others."""
        what = f"source {watched.source.name} ({watched.source.pattern or ', '.join(watched.source.topics)})"
        try:
            has_looked = self._look_at(watched)
        except (HeadraceError, RegistryUnavailable) as error:
            self._failed(what, error)
            return False
        self._failures.pop(what, None)
        return has_looked

    def _look_at(self, watched: _Watched) -> bool:
        consumer = self._open()
        topics = watched.source.topics or [name for name in consumer.list_topics() if watched.source.reads(name)]
        places = [TopicPartition(name, each.partition) for name in topics for each in consumer.partitions_for(name)]
        starts, ends = consumer.beginning_offsets(*places), consumer.end_offsets(*places)
        begin = {place: self._begin(watched, place, starts[place], ends[place], places) for place in places}
        begin = {place: offset for place, offset in begin.items() if offset < ends[place]}
        if not begin:
            return False
        records = sorted(
            (each for each in _newest(consumer, begin, ends) if each.value is not None),
            key=lambda each: (each.timestamp_ms, each.partition, each.offset),
        )
        found: dict[str, list[tuple[Place, Fields]]] = {}
        for record in records:
            fields = watched.read_fields(record.value or b"")
            if fields is not None:
                place = Place(record.partition, record.offset, record.timestamp_ms)
                found.setdefault(record.topic, []).append((place, fields))
        for topic, fields_of_records in found.items():  # nothing is counted if the registry does not answer
            watched.counts_of(topic).add(fields_of_records)
        watched.next_offsets |= {place: ends[place] for place in begin}
        return True

    def _begin(
        self, watched: _Watched, place: TopicPartition, start: int, end: int, places: Sequence[TopicPartition]
    ) -> int:
        """Returns the first offset to read: the end of the last check, or later if there are too many records since."""
        share = -(-MAX_RECORDS // sum(each.topic == place.topic for each in places))
        known = watched.next_offsets.get(place, start)
        # If the topic was deleted and created again, it may end before the last look.
        return max(start, end - share, known if known <= end else start)

    def _open(self) -> Consumer:
        if self._consumer is None:
            options: dict[str, object] = {**short_client_options(self._context.client_options)}
            isolation = self._context.client_options.get("isolation.level", "read_uncommitted")
            options |= {"isolation.level": isolation, "default.api.timeout.ms": str(_TIMEOUT_MS),
                        "allow.auto.create.topics": "false",
                        "fetch.max.bytes": str(_FETCH_BYTES)}  # fmt: skip
            self._consumer = Consumer(config=options, enable_auto_commit=False, auto_offset_reset="earliest")
        return self._consumer

    # --------------------------------------------------------------------------------------------------------- log

    def _log_changes(self) -> None:
        """Logs each change once, and again only after it was over."""
        now: set[tuple[str, ...]] = set()
        for each in self._watched.values():
            names = ", ".join(f"{view} v{version}" for view, version in each.versions)
            for change in each.changes():
                key = (names, *change.key)
                now.add(key)
                if key not in self._reported:
                    logger.log(30 if change.is_missing else 20, "%s: %s", names, change.text)
        for names, kind, source, topic, column in sorted(self._reported - now):
            if kind == "missing" and any(_is_of(each, names) for each in self._watched.values()):
                logger.info("%s: source %s: the column %s of topic %s has values again", names, source, column, topic)
        self._reported = now


def _is_of(watched: _Watched, names: str) -> bool:
    return names == ", ".join(f"{view} v{version}" for view, version in watched.versions)


def _newest(
    consumer: Consumer, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[ConsumedRecord]:
    found: list[ConsumedRecord] = []
    empty_polls = size_bytes = 0
    consumer.assign(begin)
    try:
        for place, offset in begin.items():
            consumer.seek(place, offset)
        while (
            empty_polls < _EMPTY_POLLS
            and size_bytes < _MAX_BYTES
            and any(consumer.position(place) < ends[place] for place in begin)
        ):
            records = consumer.poll(_POLL_MS)
            empty_polls = 0 if records else empty_polls + 1
            size_bytes += sum(len(each.value or b"") for each in records)
            found += records
    finally:
        consumer.assign([])  # it would go on to fetch ahead
    return found


def _together(sources: Iterable[_Watched]) -> VersionChanges:
    sources = list(sources)
    counts = {
        each.source.name: {
            "topics": {topic: one.as_dict() for topic, one in each.topics.items()},
            "next_offsets": [[*place, offset] for place, offset in each.next_offsets.items()],
        }
        for each in sources
    }
    return VersionChanges(tuple(change for each in sources for change in each.changes()), counts)
