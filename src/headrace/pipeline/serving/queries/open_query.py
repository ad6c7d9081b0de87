"""Holds one statement of a reader that a database is running: its columns, the views that it reads, and its rows.

``query_sqlite`` and ``query_postgresql`` open statements. Rows come as Python objects, in blocks, or as Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from headrace.pipeline.serving.queries.answer_limits import Row, Rows

if TYPE_CHECKING:
    from headrace.pipeline.serving.queries.arrow_values import ArrowRows


class OpenQuery(Protocol):
    """
    :ivar views_read: names of tables and views that the statement reads.
    :ivar cursor: the rows, from the first one on.
    """

    @property
    def columns(self) -> list[str]: ...
    @property
    def views_read(self) -> set[str]: ...
    @property
    def cursor(self) -> Rows: ...

    def blocks(self) -> Iterator[list[Row]]:
        """All rows, in blocks of bounded size.

        :raises QueryTimeout: if the time of the query is over.
        """

    def arrow(self) -> ArrowRows:
        """All rows, as Arrow. Only one of ``cursor``, ``blocks`` and ``arrow`` may be used.

        :raises QueryTimeout: if the time of the query is over; also while batches are read.
        """
