"""Holds an answer: its columns, its rows as Arrow batches, and up to which offsets of the log it counts."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.views.errors import ViewsError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl
    import pyarrow as pa  # type: ignore[import-untyped]

_SHOWN_ROWS = 20


@dataclass(frozen=True, slots=True)
class AsOf:
    """The offsets up to which the rows of a view count, and how old they are.

    :param updated_ms: when the rows were last written.
    :param complete_ms: the latest known time at which the answer contained every record that the log had then.
    :param age_ms: the time since ``complete_ms``; if that is unknown, since ``updated_ms``.
    """

    view: str
    version: int
    offsets: Mapping[str, Mapping[int, int]]
    updated_ms: int
    age_ms: int
    complete_ms: int | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AsOf:
        offsets = {
            topic: {int(partition): offset for partition, offset in partitions.items()}
            for topic, partitions in value["offsets"].items()
        }
        return cls(
            value["view"], value["version"], offsets, value["updated_ms"], value["age_ms"], value.get("complete_ms")
        )


class Answer:
    """The answer of one query, of one snapshot.

    The rows arrive while they are read. ``to_arrow``, ``to_pandas`` and ``to_polars`` read all of them, and keep them:
    they may be called several times. Iteration and :meth:`batches` keep nothing, unless the rows are kept already.
    """

    def __init__(
        self,
        reader: pa.ipc.RecordBatchReader,
        as_of: Sequence[AsOf],
        *,
        is_truncated: bool = False,
        close: Callable[[], None],
        check_end: Callable[[], None] = lambda: None,
    ) -> None:
        """
        :param is_truncated: whether the query has more rows than its limit.
        :param close: is called after the last row, or by :meth:`close`.
        :param check_end: is called after the last row. It raises OSError if bytes are missing.
        """
        self._reader: pa.ipc.RecordBatchReader | None = reader
        self._table: pa.Table | None = None
        self._close, self._check_end = close, check_end
        self.schema: pa.Schema = reader.schema
        self.columns: list[str] = list(reader.schema.names)
        self.as_of = list(as_of)
        self.is_truncated = is_truncated

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches.

        :raises ViewsError: if the connection breaks, or the rows were read before and not kept.
        """
        if self._table is not None:
            yield from self._table.to_batches()
            return
        if self._reader is None:
            raise ViewsError("the rows of this answer were read already: call to_arrow() first, or run the query again")
        reader, self._reader = self._reader, None
        try:
            yield from reader
            self._check_end()
        except (OSError, ValueError) as error:  # errors of Arrow and of sockets
            raise ViewsError(f"the answer broke off: {error}; run the query again") from None
        finally:
            self.close()

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        """The rows as tuples."""
        for batch in self.batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def to_arrow(self) -> pa.Table:
        if self._table is None:
            import pyarrow as pa

            self._table = pa.Table.from_batches(self.batches(), self.schema)
        return self._table

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """
        :param options: of ``pyarrow.Table.to_pandas``.
        """
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        import polars

        made = polars.from_arrow(self.to_arrow())
        assert isinstance(made, polars.DataFrame), "a table has several columns"
        return made

    def close(self) -> None:
        """Drops rows that were not read."""
        self._reader = None
        self._close()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Answer of {', '.join(self.columns)}; {'; '.join(map(as_of_text, self.as_of)) or 'of no view'}>"

    def _repr_html_(self) -> str:
        """For notebooks. It reads all rows, and shows the first ones."""
        table = self.to_arrow()
        rows = zip(*(column.to_pylist() for column in table.slice(0, _SHOWN_ROWS).columns), strict=True)
        shown = html_table(self.columns, rows)
        notes = [f"{table.num_rows:,} rows" + (", and more" if self.is_truncated else "")]
        notes += map(as_of_text, self.as_of)
        return shown + "".join(f"<p>{html.escape(note)}</p>" for note in notes)


def as_of_text(as_of: AsOf) -> str:
    """``pages v2 as of clicks 0:1200 1:1180, 0.4 s ago``."""
    places = ", ".join(
        f"{topic} " + " ".join(f"{partition}:{offset}" for partition, offset in partitions.items())
        for topic, partitions in as_of.offsets.items()
    )
    return f"{as_of.view} v{as_of.version} as of {places or 'nothing'}, {_age(as_of.age_ms)} ago"


def _age(age_ms: int) -> str:
    for unit_ms, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if age_ms >= 2 * unit_ms:
            return f"{age_ms // unit_ms} {name}"
    return f"{age_ms / 1000:.1f} s"


def html_table(headings: Sequence[str], rows: Iterator[Sequence[object]] | Sequence[Sequence[object]]) -> str:
    """A table for notebooks. Values are escaped."""
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_cell(value: object) -> str:
    return "<td></td>" if value is None else f"<td>{html.escape(str(value))}</td>"
