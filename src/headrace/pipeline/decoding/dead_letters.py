"""Sends records that do not decode to the dead-letter topic of a view.

A dead letter has the key, the value and the headers of the record, unchanged. Further headers say why it is here and
where it was::

    headrace.reason      why the record does not decode, and which column or position is wrong
    headrace.view        the view that could not decode it
    headrace.topic, headrace.partition, headrace.offset, headrace.timestamp     where it was; milliseconds
    headrace.left_out    the topic refused the record as too large: the number of bytes of the value, which is left out,
                         as are the headers of the record and a long key

The timestamp of a dead letter is the time of sending. With the timestamp of the record, retention could delete it at
once.

**How often.** ``send`` returns when the brokers have acknowledged the dead letters. Then ``sent_up_to`` stores in the
serving database how far they were sent (``serving.catalog_tables.sent_dead_letters``). Then the batch is committed. A
batch that is repeated sends only dead letters after the stored offsets. So each dead letter is sent at least once. It
is sent twice only if the process or the database fails between the acknowledgement and the store, or if the topic
refuses a record as too large: then up to 10,000 others may be sent again. Readers can recognize copies by topic,
partition and offset.

The topic is created with the defaults of the cluster if it does not exist.

A view without a dead-letter topic only counts its bad records.

**A schema that changes.** Records that are suddenly bad for one reason usually mean that their writer has changed. So a
reason that is new for this version is logged once, with the place of the first such record.
"""

from __future__ import annotations

from collections.abc import Iterator
from logging import getLogger
from typing import Self

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.client.admin.sync_admin import Admin
from headrace.client.errors import RecordTooLarge
from headrace.client.producer.sync_producer import Producer
from headrace.pipeline.decoding.bad_positions import with_positions
from headrace.pipeline.decoding.events import ERROR, HEADERS, RECORD_COLUMNS, VALUE
from headrace.pipeline.progress.offsets import by_partition, updated
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog_tables.sent_dead_letters import SentDeadLetters
from headrace.pipeline.serving.catalog_tables.versions import Offsets
from headrace.pipeline.spark.options import shared_client_options, short_client_options

logger = getLogger(__name__)

#: From the columns of ``events.bad_rows`` to those of ``send``.
COLUMNS = {**RECORD_COLUMNS, VALUE: "value", HEADERS: "headers", ERROR: "reason"}
_PLACES = ("topic", "partition", "offset")
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_OUR_HEADERS = 6
_ROWS_PER_STEP = 10_000
#: Large, because the topic decides which record is too large.
_MAX_REQUEST_BYTES = 64 << 20
_LONG_KEY_BYTES = 10_000
#: The number of reasons that are logged. Reasons may contain parts of records, so there can be as many as records.
_MAX_REASONS = 20


class DeadLetters:
    """Sends the dead letters of one version. Its producer is opened for the first bad record.

    :param stored: stores how far dead letters were sent; None to send everything in every call.
    """

    def __init__(self, project: Project, definition: ViewDefinition, stored: SentDeadLetters | None = None) -> None:
        self.topic = definition.dead_letters
        self._view = definition.name
        self._client = shared_client_options(project.log_options) | {"bootstrap.servers": project.bootstrap}
        self._producer: Producer | None = None
        self._stored = stored
        self._sent: Offsets | None = None
        self._has_unstored = False
        self._reasons: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.close()

    def send(self, rows: pa.Table) -> int:
        """Sends rows and waits until they are acknowledged. Rows that were sent before are left out.

        :param rows: key, value, topic, partition, offset, timestamp, reason and perhaps headers; or the same columns
            with the names of ``events.bad_rows``.
        :return: the number of rows, sent or not.
        :raises HeadraceError: if the brokers do not accept them.
        """
        if rows.num_rows:
            rows = rows.rename_columns([COLUMNS.get(name, name) for name in rows.column_names])
            self._log_new_reasons(rows)
        if self.topic and rows.num_rows:
            named = self._not_sent(rows)
            for start in range(0, named.num_rows, _ROWS_PER_STEP):
                self._has_unstored = True
                self._send_step(self._open(), self._letters(named.slice(start, _ROWS_PER_STEP)))
        return int(rows.num_rows)

    def _log_new_reasons(self, rows: pa.Table) -> None:
        if len(self._reasons) >= _MAX_REASONS:
            return
        for reason in pc.unique(rows["reason"]).to_pylist()[:_MAX_REASONS]:
            if reason not in self._reasons and len(self._reasons) < _MAX_REASONS:
                self._reasons.add(reason)
                at = pc.index(rows["reason"], reason).as_py()
                topic, partition, offset = (rows[name][at].as_py() for name in _PLACES)
                said = " ".join(reason.split())
                logger.warning(
                    "%s: records do not decode, the first is %s:%s:%s: %s", self._view, topic, partition, offset, said
                )

    def sent_up_to(self, offsets: Offsets) -> None:
        """Stores that all dead letters before these offsets were sent. Call it before the batch is committed."""
        if self._stored is not None and self._has_unstored:
            self._sent = updated(self._before(), offsets)
            self._stored.write(self._sent)
        self._has_unstored = False

    def _before(self) -> Offsets:
        if self._sent is None:
            self._sent = self._stored.read() if self._stored is not None else {}
        return self._sent

    def _not_sent(self, rows: pa.Table) -> pa.Table:
        for partition, end in by_partition(self._before()).items():
            is_there = pc.and_(
                pc.equal(rows["topic"], partition.topic), pc.equal(rows["partition"], partition.partition)
            )
            rows = rows.filter(pc.invert(pc.and_(is_there, pc.less(rows["offset"], end))))
        return rows

    def _open(self) -> Producer:
        if self._producer is None:
            with Admin(short_client_options(self._client)) as admin:
                if self.topic not in admin.list_topics():
                    admin.create_topic(self.topic, exist_ok=True)
            self._producer = Producer(self._client, max_request_size=_MAX_REQUEST_BYTES)
        return self._producer

    def _send_step(self, producer: Producer, letters: pa.Table) -> None:
        try:
            producer.send_arrow(self.topic, letters).result()
        except RecordTooLarge:
            # Some of them may have arrived. They are sent again: dead letters are sent at least once.
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
    """One list per row, with one entry per column."""
    count = len(columns)
    together = pa.chunked_array([chunk for column in columns.values() for chunk in column.cast(pa.binary()).chunks])
    by_row = np.arange(row_count * count).reshape(count, row_count).T.reshape(-1)
    values = together.take(pa.array(by_row)).combine_chunks()
    keys = pa.array(list(columns) * row_count, pa.string())
    entries = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER))
    offsets = pa.array(np.arange(row_count + 1) * count, pa.int32())
    return pa.ListArray.from_arrays(offsets, entries)
