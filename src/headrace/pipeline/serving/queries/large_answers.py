"""Answers queries with as many rows as there are: as an Arrow stream, as CSV, or in pages.

Each answer is one snapshot. It goes into a file of the spool, and the transaction ends. Memory holds one block of rows.

**Pages.** The first page runs the query, and stores the whole answer, one JSON array per row and line. A token names
the answer and the byte at which a page begins. So all pages together are exactly one answer: no row is missing, none
comes twice, whatever the views do meanwhile, and whether or not the statement orders its rows. Two other designs were
not taken:

- An OFFSET per page runs the query again for each page. Rows move between pages when the view changes. Without a total
  order, SQL allows another order each time even if the view does not change.
- Keys (``WHERE key > ...``) need a total order by columns that the answer has, and each page is of another snapshot.

The price: the first page takes as long as the whole answer, and a token is only known to the server that issued it. A
page can be read again, until nobody has read one for ten minutes.
"""

from __future__ import annotations

import csv
import io
import json
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from headrace.pipeline.serving.errors import PageGone
from headrace.pipeline.serving.queries.answer_limits import MAX_ANSWER_BYTES, Row
from headrace.pipeline.serving.queries.formats import jsonable, plain_cell
from headrace.pipeline.serving.queries.query import QueryService
from headrace.pipeline.serving.queries.spool import Spool, SpoolFile
from headrace.runtime.clock import Clock, SystemClock
from headrace.views.answers import AsOf

PAGES_KEPT_MS = 600_000
_READ_BYTES = 1 << 20
_GONE = (
    "the server does not hold the answer of this page: no page was read for ten minutes, or the server was started "
    "again; run the query again"
)


@dataclass(frozen=True)
class LargeAnswer:
    """An answer in a file, as it is sent. Who gets it closes the file."""

    columns: list[str]
    as_of: list[AsOf]
    is_truncated: bool
    file: SpoolFile


@dataclass(frozen=True)
class Page:
    """
    :param rows: each a JSON array.
    :param next: the token of the next page; None after the last one.
    """

    columns: list[str]
    as_of: list[AsOf]
    rows: list[bytes]
    next: str | None


@dataclass
class _Kept:
    """An answer of which pages are left."""

    columns: list[str]
    as_of: list[AsOf]
    file: SpoolFile
    until_ms: int


class LargeAnswers:
    """Any thread may call its methods."""

    def __init__(self, service: QueryService, spool: Spool | None = None, clock: Clock | None = None) -> None:
        self.spool = spool or Spool()
        self._service, self._clock = service, clock or SystemClock()
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}

    def close(self) -> None:
        with self._lock:
            for kept in self._kept.values():
                kept.file.close()
            self._kept.clear()

    # -------------------------------------------------------------------------------------------------- in one piece

    def arrow(
        self,
        sql: str,
        *,
        limit: int | None,
        timeout_ms: int,
        compression: str | None = None,
        same_offsets: bool = False,
    ) -> LargeAnswer:
        """The answer as an Arrow IPC stream. Errors as in :meth:`QueryService.query`, and:

        :param limit: None for all rows.
        :raises AnswerTooLarge: if there is no room for the answer.
        """
        from headrace.pipeline.serving.queries.arrow_stream import as_of_metadata, write_stream

        self.drop_old_pages()
        with self._service.open(sql, timeout_ms=timeout_ms, same_offsets=same_offsets) as (query, as_of):
            file, is_truncated = write_stream(
                query.arrow(), self.spool, as_of_metadata(as_of), limit=limit, compression=compression
            )
        return LargeAnswer(query.columns, as_of, is_truncated, file)

    def csv(self, sql: str, *, limit: int | None, timeout_ms: int, same_offsets: bool = False) -> LargeAnswer:
        """The answer as CSV. Parameters and errors as in :meth:`arrow`."""
        self.drop_old_pages()
        opened = self._service.open(sql, timeout_ms=timeout_ms, same_offsets=same_offsets)
        with ExitStack() as stack, opened as (query, as_of):
            file = stack.enter_context(self.spool.new_file())
            file.write(csv_lines([query.columns]))
            left = limit
            is_truncated = False
            for block in query.blocks():
                is_truncated = left is not None and len(block) > left
                file.write(csv_lines([plain_cell(value) for value in row] for row in block[:left]))
                if is_truncated:
                    break
                left = None if left is None else left - len(block)
            stack.pop_all()
        return LargeAnswer(query.columns, as_of, is_truncated, file)

    # ----------------------------------------------------------------------------------------------------- in pages

    def first_page(self, sql: str, *, page_size: int, timeout_ms: int, same_offsets: bool = False) -> Page:
        """Runs the query, and returns its first rows. Errors as in :meth:`arrow`."""
        self.drop_old_pages()
        with ExitStack() as stack:
            with self._service.open(sql, timeout_ms=timeout_ms, same_offsets=same_offsets) as (query, as_of):
                file = stack.enter_context(self.spool.new_file())
                for block in query.blocks():
                    file.write(_json_lines(block))
            rows, end = _lines(file, 0, page_size)
            if end == file.size_bytes:
                return Page(query.columns, as_of, rows, None)
            name = secrets.token_urlsafe(16)
            with self._lock:
                self._kept[name] = _Kept(query.columns, as_of, file, self._clock.monotonic_ms() + PAGES_KEPT_MS)
            stack.pop_all()
        return Page(query.columns, as_of, rows, f"{name}.{end}")

    def page(self, token: str, *, page_size: int) -> Page:
        """The rows from a token on.

        :raises PageGone: if the server does not hold the answer.
        """
        self.drop_old_pages()
        name, _, position = token.rpartition(".")
        with self._lock:
            kept = self._kept.get(name)
            if kept is None or not _is_start_of_line(kept.file, position):
                raise PageGone(_GONE)
            kept.until_ms = self._clock.monotonic_ms() + PAGES_KEPT_MS
            rows, end = _lines(kept.file, int(position), page_size)
            following = f"{name}.{end}" if end < kept.file.size_bytes else None
            return Page(kept.columns, kept.as_of, rows, following)

    def drop_old_pages(self) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            for name in [name for name, kept in self._kept.items() if kept.until_ms <= now_ms]:
                self._kept.pop(name).file.close()


def _json_lines(block: Iterable[Row]) -> bytes:
    lines = (json.dumps([jsonable(value) for value in row]) for row in block)
    return "".join(f"{line}\n" for line in lines).encode()


def csv_lines(rows: Iterable[Sequence[object]]) -> bytes:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue().encode()


def _is_start_of_line(file: SpoolFile, position: str) -> bool:
    if not (position.isascii() and position.isdecimal()) or len(position) > 18 or int(position) >= file.size_bytes:
        return False
    return int(position) == 0 or file.read_at(int(position) - 1, 1) == b"\n"


def _lines(file: SpoolFile, position: int, count: int) -> tuple[list[bytes], int]:
    """Up to ``count`` lines from a position on, and the position behind them. At least one, if there is one."""
    lines: list[bytes] = []
    size_bytes = 0
    for line in _all_lines(file, position):
        if len(lines) == count or (lines and size_bytes + len(line) > MAX_ANSWER_BYTES):
            break
        lines.append(line)
        size_bytes += len(line) + 1
    return lines, position + size_bytes


def _all_lines(file: SpoolFile, position: int) -> Iterator[bytes]:
    rest = b""
    while data := file.read_at(position, _READ_BYTES):
        position += len(data)
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
