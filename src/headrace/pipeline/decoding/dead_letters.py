"""Records that do not decode, sent to a view's dead-letter topic.

A dead letter has the key and the value of the record, byte for byte, and the headers that it had. Why it is here and
where it stood is in headers more::

    headrace.reason      why it does not decode, and which column or position is wrong
    headrace.view        which view says so
    headrace.topic, headrace.partition, headrace.offset, headrace.timestamp     where it stood; milliseconds
    headrace.left_out    the topic did not take a record so large: how many bytes the value had, which is not there;
                         nor are the record's own headers, and a key that is long

Its own timestamp is the time of sending: with the record's, retention could take it away at once.

**How often.** ``send`` returns when the brokers have acknowledged the dead letters, then ``sent_up_to`` notes in the
serving database how far they were sent (``serving.dead_letter_notes``), and then the batch is committed. A batch done
again sends only what lies beyond the note. So each dead letter is there at least once; and once only, unless the
process dies or the database goes away after the acknowledgement and before the note, or the topic refuses a record as
too large, in which case up to 10,000 others may be sent again. Readers tell copies by topic, partition and offset.

The topic is made if it is not there, as the cluster's defaults have it.

A view that names no topic only counts its bad records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.client.admin.sync_admin import Admin
from headrace.client.errors import RecordTooLarge
from headrace.client.producer.sync_producer import Producer
from headrace.pipeline.decoding.bad_positions import with_positions
from headrace.pipeline.decoding.events import ERROR, HEADERS, PLACE, VALUE
from headrace.pipeline.progress.offsets import by_partition, joined
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog_tables import Offsets
from headrace.pipeline.serving.sent_dead_letters import DeadLetterNotes
from headrace.pipeline.spark.options import shared_client_options

#: From the columns of ``decoding.bad_rows`` to those of ``send``.
COLUMNS = {**PLACE, VALUE: "value", HEADERS: "headers", ERROR: "reason"}
_PLACES = ("topic", "partition", "offset")
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_OUR_HEADERS = 6
_ROWS_A_STEP = 10_000
#: What is too large is for the topic to say.
_MAX_REQUEST_BYTES = 64 << 20
_LONG_KEY_BYTES = 10_000


class DeadLetters:
    """Of one version of a view. Its producer is opened for the first bad record, and kept.

    :param notes: where to remember what was sent; None if every call is to send everything.
    """

    def __init__(self, project: Project, definition: ViewDefinition, notes: DeadLetterNotes | None = None) -> None:
        self.topic = definition.dead_letters
        self._view = definition.name
        self._client = shared_client_options(project.log_options) | {"bootstrap.servers": project.bootstrap}
        self._producer: Producer | None = None
        self._notes = notes
        self._sent: Offsets | None = None
        self._has_news = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.close()

    def send(self, rows: pa.Table) -> int:
        """Waits until they are acknowledged; those that were sent before are left out.

        :param rows: key, value, topic, partition, offset, timestamp, reason, perhaps headers; or the same as
            ``decoding.bad_rows`` names them.
        :return: how many there were, sent or not.
        :raises HeadraceError: if the brokers do not take them.
        """
        if self.topic and rows.num_rows:
            named = self._not_sent(rows.rename_columns([COLUMNS.get(name, name) for name in rows.column_names]))
            for start in range(0, named.num_rows, _ROWS_A_STEP):
                self._has_news = True
                self._send_step(self._open(), self._letters(named.slice(start, _ROWS_A_STEP)))
        return int(rows.num_rows)

    def sent_up_to(self, point: Offsets) -> None:
        """Notes that all dead letters before this point were sent; to be called before the batch is committed."""
        if self._notes is not None and self._has_news:
            self._sent = joined(self._before(), point)
            self._notes.write(self._sent)
        self._has_news = False

    def _before(self) -> Offsets:
        if self._sent is None:
            self._sent = self._notes.read() if self._notes is not None else {}
        return self._sent

    def _not_sent(self, rows: pa.Table) -> pa.Table:
        for place, end in by_partition(self._before()).items():
            is_there = pc.and_(pc.equal(rows["topic"], place.topic), pc.equal(rows["partition"], place.partition))
            rows = rows.filter(pc.invert(pc.and_(is_there, pc.less(rows["offset"], end))))
        return rows

    def _open(self) -> Producer:
        if self._producer is None:
            with Admin(self._client) as admin:
                if self.topic not in admin.list_topics():
                    admin.create_topic(self.topic, exist_ok=True)
            self._producer = Producer(self._client, max_request_size=_MAX_REQUEST_BYTES)
        return self._producer

    def _send_step(self, producer: Producer, letters: pa.Table) -> None:
        try:
            producer.send_arrow(self.topic, letters).result()
        except RecordTooLarge:
            # Some of them may have arrived: at least once is what is promised.
            for letter in _rows(letters):
                self._send_one(producer, letter)

    def _send_one(self, producer: Producer, letter: pa.Table) -> None:
        try:
            producer.send_arrow(self.topic, letter).result()
        except RecordTooLarge:
            producer.send_arrow(self.topic, _shortened(letter)).result()

    def _letters(self, rows: pa.Table) -> pa.Table:
        whole = rows.combine_chunks()
        return pa.table({"key": whole["key"], "value": whole["value"], "headers": self._headers(whole)})

    def _headers(self, rows: pa.Table) -> pa.Array:
        ours = {
            "headrace.reason": with_positions(rows["reason"], rows["value"]),
            "headrace.view": pa.chunked_array([pa.repeat(self._view, rows.num_rows)]),
            **{f"headrace.{name}": rows[name].cast(pa.string()) for name in _PLACES},
            "headrace.timestamp": pc.cast(rows["timestamp"], pa.timestamp("ms", "UTC"), safe=False)
            .cast(pa.int64())
            .cast(pa.string()),
        }
        assert len(ours) == _OUR_HEADERS
        made = _interleaved(ours, rows.num_rows)
        if "headers" not in rows.column_names:
            return made
        had = rows["headers"].to_pylist()
        return pa.array(
            [[*(old or ()), *new] for old, new in zip(had, made.to_pylist(), strict=True)], pa.list_(_HEADER)
        )


def _shortened(letter: pa.Table) -> pa.Table:
    (key,), (value,), (headers,) = (letter.column(name).to_pylist() for name in ("key", "value", "headers"))
    ours = [*headers[-_OUR_HEADERS:], {"key": "headrace.left_out", "value": str(len(value or b"")).encode()}]
    return pa.table(
        {
            "key": pa.array([key if key is None or len(key) < _LONG_KEY_BYTES else None], pa.binary()),
            "value": pa.array([None], pa.binary()),
            "headers": pa.array([ours], pa.list_(_HEADER)),
        }
    )


def _rows(table: pa.Table) -> Iterator[pa.Table]:
    return (table.slice(at, 1) for at in range(table.num_rows))


def _interleaved(columns: dict[str, pa.ChunkedArray], row_count: int) -> pa.Array:
    """One list a row, with an entry a column."""
    count = len(columns)
    together = pa.chunked_array([chunk for column in columns.values() for chunk in column.cast(pa.binary()).chunks])
    by_row = np.arange(row_count * count).reshape(count, row_count).T.reshape(-1)
    values = together.take(pa.array(by_row)).combine_chunks()
    keys = pa.array(list(columns) * row_count, pa.string())
    entries = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER))
    offsets = pa.array(np.arange(row_count + 1) * count, pa.int32())
    return pa.ListArray.from_arrays(offsets, entries)
