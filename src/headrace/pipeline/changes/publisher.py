"""Publishes the changes of one view to its topic, exactly once.

Each transaction of the producer has some changes of the outbox and the number of the last one, as a committed offset of
the group ``headrace-publish-<topic>``: partition 0, the offset is the number, the metadata is ``OWNER STREAM``. So the
records and the position are committed together, or not at all. The transactional id is the name of the group: a topic
has one publisher, and a new one fences an older one and aborts its open transaction, before it reads the position.

After each transaction the serving database gets the position too. Offsets of a group without members expire after
``offsets.retention.minutes`` (a week by default), and a view may have no changes for longer. The larger of the two
positions counts. A runner that dies between the two commits, and stays away until the offset has expired, publishes
one transaction again. Its records are the same, so the table that they build is right.

If the outbox cannot continue from the position (a new stream, changes that are no longer kept, the first start), the
publisher compares the topic with the view, and sends only the difference, in one transaction. ``OWNER`` is an id of
this view in this database. A topic with records that has no position of this owner is refused: it belongs to somebody
else.

Considered and dropped: the number in a header of the last record, read back from the topic's end (compaction removes
tombstones after ``delete.retention.ms``, and the last record may be one), and a record of its own for the position
(every consumer of the topic would have to know it).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from logging import getLogger
from typing import NamedTuple

from headrace.client.config import ProducerConfig
from headrace.client.errors import HeadraceError
from headrace.client.producer.sync_producer import Producer
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.pipeline.changes.outbox import Followed
from headrace.pipeline.changes.published_topic import PublishedTopic, PublishRefused, value_hash
from headrace.pipeline.changes.reading import ChangeReader, ReportedChange
from headrace.pipeline.changes.record_formats import RecordFormat, format_of
from headrace.pipeline.project.definition import Publish
from headrace.pipeline.serving.catalog_tables.row_updates import update_or_insert
from headrace.pipeline.serving.change_tables import PUBLISHED
from headrace.pipeline.serving.database import Database
from headrace.runtime.clock import Clock

logger = getLogger("headrace.views")

_CHANGES_PER_TRANSACTION = 5_000
#: A transaction with a whole view may take long.
_TRANSACTION_MS = 600_000


class _Position(NamedTuple):
    """:ivar stream: the stream and the format of the records; empty if nothing was published yet."""

    stream: str
    seq: int


class Publisher:
    """One thread calls its methods. A publisher that raised has to be closed; another one continues."""

    def __init__(
        self,
        database: Database,
        reader: ChangeReader,
        clock: Clock,
        client: Mapping[str, str],
        view: str,
        publish: Publish,
    ) -> None:
        self._database, self._reader, self._clock = database, reader, clock
        self.view, self.publish = view, publish
        self._client = dict(client)
        self._topic = PublishedTopic(client, publish.topic)
        self._producer: Producer | None = None
        self._owner = self._topic_id = ""
        self._position = _Position("", 0)
        self._format: tuple[str, RecordFormat] | None = None

    def close(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            with suppress(HeadraceError):
                producer.close(5)

    def advance(self) -> bool:
        """Publishes what the topic lacks, in one transaction.

        :return: False if there was nothing to publish.
        :raises PublishRefused: if the view or the topic does not allow it.
        """
        last = self._reader.last(self.view)
        if last is None or self._position == _Position(f"{last[0]}/{self.publish.format}", last[1]):
            return False
        state = self._reader.state(self.view)
        if state is None:
            return False
        if state.key is None:
            raise PublishRefused(
                f"{self.view} has no key, and a record of a compacted topic needs one: set key in the view's file to "
                'the columns that identify a row, such as key = ["id"]'
            )
        if self._producer is None:
            self._open()
        stream = f"{state.stream}/{self.publish.format}"
        changes = None
        if self._position.stream == stream:
            if self._position.seq == state.last_seq:
                return False
            changes = self._reader.changes(self.view, state.stream, self._position.seq, _CHANGES_PER_TRANSACTION)
        if changes is None:
            self._send_difference()
        else:
            self._send_changes(state, _up_to_step(changes))
        return True

    # ------------------------------------------------------------------------------------------------------- opening

    def _open(self) -> None:
        self._topic_id = self._topic.prepare()
        options = ProducerConfig.select({**self._client, "enable.metrics.push": "false"})
        options |= {"transaction.timeout.ms": str(_TRANSACTION_MS), "linger.ms": "0"}
        self._producer = Producer(config=options, transactional_id=self._topic.group)
        self._producer.init_transactions()
        self._position = self._found_position()

    def _found_position(self) -> _Position:
        """How far the topic is.

        :raises PublishRefused: if the topic has records of somebody else.
        """
        with self._database.read() as connection:
            known = connection.execute(PUBLISHED.select().where(PUBLISHED.c.view == self.view)).one_or_none()
        if known is not None and (known.topic, known.topic_id) != (self._topic.name, self._topic_id):
            known = None
        self._owner = known.owner if known is not None else uuid.uuid4().hex[:16]
        stored = _Position(known.stream, known.seq) if known is not None else _Position("", 0)
        committed = self._topic.committed()
        owner, _, stream = (committed.metadata if committed else "").partition(" ")
        if committed is not None and owner == self._owner:
            is_newer = stream != stored.stream or committed.offset > stored.seq
            return _Position(stream, committed.offset) if is_newer else stored
        if (committed is not None or not stored.stream) and self._topic.has_records():
            raise PublishRefused(
                f"the topic {self._topic.name} has records that were not written for the view {self.view} of this "
                "database: publish to a topic without records"
            )
        if known is None:
            self._save(stored)
        return stored

    # ------------------------------------------------------------------------------------------------------- sending

    def _send_changes(self, state: Followed, changes: Sequence[ReportedChange]) -> None:
        records = self._records(state)
        with self._transaction(_Position(f"{state.stream}/{self.publish.format}", changes[-1].seq)) as producer:
            for each in changes:
                assert each.key is not None, "a stream with a key has keys"
                value = None if each.after is None else records.value(each.after)
                producer.send(self._topic.name, value, key=records.key(each.key))

    def _send_difference(self) -> None:
        """Sends what differs between the topic and the view: after a new stream, or when publishing begins."""
        there = self._topic.contents()
        sent = 0
        with self._reader.rows(self.view) as found:
            if found is None:
                return
            state, rows = found
            if state.key is None:  # it has changed since ``advance`` looked
                return
            records = self._records(state)
            with self._transaction(_Position(f"{state.stream}/{self.publish.format}", state.last_seq)) as producer:
                for row in rows:
                    key, value = records.key({name: row[name] for name in state.key}), records.value(row)
                    if there.pop(key, None) != value_hash(value):
                        producer.send(self._topic.name, value, key=key)
                        sent += 1
                for key in there:
                    producer.send(self._topic.name, None, key=key)
        logger.info(
            "%s: compared with the topic %s: %s rows sent, %s removed", self.view, self._topic.name, sent, len(there)
        )

    def _records(self, state: Followed) -> RecordFormat:
        if self._format is None or self._format[0] != state.stream:
            self._format = state.stream, format_of(self.publish, state)
        return self._format[1]

    def _transaction(self, after: _Position) -> Transaction:
        assert self._producer is not None
        offsets = {TopicPartition(self._topic.name, 0): OffsetAndMetadata(after.seq, f"{self._owner} {after.stream}")}
        return Transaction(self, self._producer, offsets, self._topic.group, after)

    def committed(self, position: _Position) -> None:
        """The transaction up to this position is committed."""
        self._position = position
        self._save(position)

    def _save(self, position: _Position) -> None:
        values = {
            "topic": self._topic.name,
            "topic_id": self._topic_id,
            "owner": self._owner,
            "stream": position.stream,
            "seq": position.seq,
            "error": None,
            "updated_ms": self._clock.wall_ms(),
        }
        with self._database.begin() as connection:
            update_or_insert(connection, PUBLISHED, {"view": self.view}, values)


class Transaction:
    """One transaction with the position after it. It is aborted if anything in it raises."""

    def __init__(
        self,
        publisher: Publisher,
        producer: Producer,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        group: str,
        after: _Position,
    ) -> None:
        self._publisher, self._producer, self._offsets = publisher, producer, offsets
        self._group, self._after = group, after

    def __enter__(self) -> Producer:
        self._producer.begin_transaction()
        return self._producer

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._abort()
            return
        try:
            self._producer.send_offsets_to_transaction(self._offsets, self._group)
            self._producer.commit_transaction()
        except BaseException:
            self._abort()
            raise
        self._publisher.committed(self._after)

    def _abort(self) -> None:
        """Otherwise readers of committed records would wait until its timeout."""
        with suppress(HeadraceError):
            self._producer.abort_transaction()


def _up_to_step(changes: Sequence[ReportedChange]) -> Sequence[ReportedChange]:
    """The changes up to the end of a step, unless one step is larger than a transaction."""
    ends = [at for at, each in enumerate(changes, 1) if each.is_last_of_step]
    return changes[: ends[-1]] if ends else changes
