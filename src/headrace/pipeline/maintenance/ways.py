"""The ways to keep the answer of a view up to date, from cheapest to most expensive.

=========  ===========================================================================================================
combine    partial results of new records are merged with the stored ones
stream     Spark's streaming keeps the state of the query
touched    only those rows are computed again whose input has changed
whole      the answer is computed from the start, then swapped in one transaction
=========  ===========================================================================================================

A way is exact for a query if, after every commit, the rows are the query over a prefix of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.pipeline.project.toml_files import Problem


class Way(StrEnum):
    COMBINE = "combine"
    STREAM = "stream"
    TOUCHED = "touched"
    WHOLE = "whole"


#: For people: what a way does.
MEANINGS: Mapping[Way, str] = {
    Way.COMBINE: "partial results of new records are merged with the stored ones",
    Way.STREAM: "Spark's streaming keeps the state of the query",
    Way.TOUCHED: "only those rows are computed again whose input has changed",
    Way.WHOLE: "the answer is computed from the start, then swapped in one transaction",
}
#: The ways that an architecture has, the cheapest first.
WAYS_OF: Mapping[str, tuple[Way, ...]] = {
    "lambda": (Way.COMBINE, Way.TOUCHED, Way.WHOLE),
    "kappa": (Way.COMBINE, Way.STREAM, Way.TOUCHED, Way.WHOLE),
}


#: The only way that each architecture had at first.
_FIRST_WAYS = {"lambda": Way.COMBINE, "kappa": Way.STREAM}


def stored_way(definition: Mapping[str, object]) -> str:
    """How a version is kept up to date.

    :param definition: as the catalog stores it. Before ways were stored, each architecture had one.
    """
    return str(definition.get("way") or _FIRST_WAYS[str(definition["architecture"])])


@dataclass(frozen=True)
class Refusal:
    """
    :param why: why the way is not used for this query.
    :param problem: the same as a problem of the project, with its place.
    """

    way: Way
    why: str
    problem: Problem


@dataclass(frozen=True)
class Cost:
    """The cost of an event.

    :param records_read: how often a record is read from the log or the archive until it is in a batch; None if that
        depends on the data.
    :param reads: the same in words.
    :param jobs: Spark jobs of a small micro-batch, at most; None if there are no micro-batches.
    :param work: what a micro-batch does, in words.
    :param state: what is stored besides the answer, in words.
    """

    records_read: int | None
    reads: str
    jobs: int | None
    work: str
    state: str


@dataclass(frozen=True)
class Maintenance:
    """How a view is kept up to date.

    :param reason: why this way is exact for the query, or was asked for.
    :param refused: the cheaper ways, and why they are not used.
    """

    way: Way
    reason: str
    refused: tuple[Refusal, ...]
    cost: Cost
