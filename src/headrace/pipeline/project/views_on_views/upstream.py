"""Holds the views that a view's query names: their queries are part of the definition of the view that reads them.

A view on views is a query over sources. The query of each upstream view stands in place of its name, as a SQL view's
query does, so no view waits for the rows of another view. ``query.view_query`` applies the queries in the order of
``ViewDefinition.views``, in which every view comes after those that it reads.

A view with topics and [decode] of its own calls its records ``events``. In the definition of a view that reads this
view, they are a source named ``VIEW.events``. No file of a source can have a name with a point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headrace.pipeline.project.decode import FileText


@dataclass(frozen=True)
class UpstreamTable:
    """A table that the query of an upstream view can read.

    :param name: its name in FROM.
    :param reads: the source, or the upstream view, that it is.
    :param topic: if it has the records of one topic only, this topic.
    """

    name: str
    reads: str
    topic: str = ""


@dataclass(frozen=True)
class UpstreamView:
    """
    :param tables: in the order of the arguments, if the query is a Python function.
    :param answer_hash: ``ViewDefinition.answer_hash`` of the view.
    :param replaced_by: the key of a view whose rows may replace each other: a Kappa view with ``key`` that may be kept
        by ``stream``. Only Spark knows whether the query groups by the key, so that no two rows have the same one.
    """

    name: str
    query: FileText
    tables: tuple[UpstreamTable, ...]
    answer_hash: str
    replaced_by: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(
            name=values["name"],
            query=FileText(**values["query"]),
            tables=tuple(UpstreamTable(**each) for each in values["tables"]),
            answer_hash=values["answer_hash"],
            replaced_by=tuple(values["replaced_by"]),
        )


def records_of_view(view: str) -> str:
    """The name of the source that has the records of a view with topics of its own."""
    return f"{view}.events"


def is_of_view(source: str) -> bool:
    """Whether a source has the records of an upstream view. Queries cannot name such a source."""
    return "." in source
