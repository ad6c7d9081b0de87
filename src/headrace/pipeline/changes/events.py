"""Writes the events of a change feed as server-sent events, and reads the ids by which readers resume. No I/O.

::

    event: begin      data: {"reason": ...}                       forget all rows: a snapshot follows
    event: row        data: {"row": {...}}                        one row of the snapshot
    event: ready      data: {"rows": 12, "key": [...], "as_of": [...]}     the snapshot is complete       id: STREAM-SEQ
    event: change     data: {"op": "update", "key": {...}, "before": {...}, "after": {...}, "copies": 1,
                             "as_of": [...], "last_of_step": true}                                        id: STREAM-SEQ
    event: bye        data: {"reason": ...}                       the server closes the connection; resume later

Rows of a snapshot have no id. So a reader that loses its connection within a snapshot gets a new snapshot.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.pipeline.changes.outbox import Followed
from headrace.pipeline.changes.reading import ReportedChange
from headrace.pipeline.changes.row_values import Row, row_text

HEARTBEAT = b": heartbeat\n\n"
_ID = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})")


class Position(NamedTuple):
    """How far a reader has read: the number of its last change, in a stream."""

    stream: str
    seq: int

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """The position of a ``Last-Event-ID``; None if no feed has given this id."""
        found = _ID.fullmatch(text[:100])
        return None if found is None else cls(found[1], int(found[2]))

    def __str__(self) -> str:
        return f"{self.stream}-{self.seq}"


def event(name: str, data: object, position: Position | None = None) -> bytes:
    """One event. JSON has no line breaks outside of texts, and escapes those within."""
    id_line = "" if position is None else f"id: {position}\n"
    return f"event: {name}\n{id_line}data: {row_text(data)}\n\n".encode()


def begin(reason: str) -> bytes:
    return event("begin", {"reason": reason})


def snapshot_row(row: Row) -> bytes:
    return event("row", {"row": row})


def ready(state: Followed, rows: int) -> bytes:
    data = {"rows": rows, "key": state.key, "as_of": [state.as_of]}
    return event("ready", data, Position(state.stream, state.last_seq))


def change(stream: str, reported: ReportedChange) -> bytes:
    data = {
        "op": reported.op,
        "key": reported.key,
        "before": reported.before,
        "after": reported.after,
        "copies": reported.copies,
        "as_of": [reported.as_of],
        "last_of_step": reported.is_last_of_step,
    }
    return event("change", data, Position(stream, reported.seq))


def bye(reason: str) -> bytes:
    return event("bye", {"reason": reason})
