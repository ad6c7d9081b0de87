"""Finds joins whose answer can be much larger than their input, and estimates how large.

A join without an equality compares every row of one side with every row of the other. A join whose keys repeat on both
sides has, per key, the product of the two numbers of rows. Estimates come from the topics' own statistics: the number
of their records by offsets, and the distinct keys in a sample of records (``samples``). They are upper bounds: whether
a key of one side occurs on the other, and how many pairs further conditions remove, is not estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.errors import HeadraceError
from headrace.pipeline.maintenance.samples import Sample, estimated_distinct, frame_of, sample_of
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.query.view_query import apply_query
from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, items, kind, walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = getLogger(__name__)

#: Rows per key from which a key counts as one that repeats; a sample is not exact.
_REPEATS = 1.5
_ONE_ROW_PER_ROW = {"Project", "Filter", "Generate", "LogicalRDD"}
#: Joins that only select rows of one side.
_SELECTING = {"LeftSemi", "LeftAnti", "ExistenceJoin"}


@dataclass(frozen=True)
class Side:
    """One side of a join, as the sample shows it.

    :param names: the sources that it reads.
    :param rows: how many rows it has now, about; None if that is not known.
    :param rows_per_key: how many rows have the same key, on average.
    """

    names: tuple[str, ...]
    rows: float | None
    rows_per_key: float

    @property
    def shown(self) -> str:
        return " and ".join(self.names) or "the query"


class JoinWarning(NamedTuple):
    """
    :ivar rows: how many rows the join has now, about, at most; None if that is not known.
    """

    text: str
    rows: int | None


class _Join(NamedTuple):
    node: JavaObject
    keys: tuple[list[JavaObject], list[JavaObject]]
    has_more: bool

    @property
    def how(self) -> str:
        return kind(self.node.joinType())


def join_warnings(spark: SparkSession, definition: ViewDefinition, log_options: Mapping[str, str]) -> list[JoinWarning]:
    """
    :param log_options: the options with which ``format("headrace")`` reaches the log.
    """
    empty = {source.name: Sample(0, []) for source in definition.inputs}
    if not _joins(_planned(spark, definition, empty)):
        return []
    samples = {}
    for source in definition.inputs:
        try:
            samples[source.name] = sample_of(source, log_options)
        except HeadraceError as error:
            logger.debug("no sample of %s: %s", source.name, error)
            samples[source.name] = empty[source.name]
    planned = _planned(spark, definition, samples)
    found = (_warning(planned, join, samples) for join in _joins(planned))
    return [each for each in found if each is not None]


class _Planned(NamedTuple):
    """:ivar sources: by the id of an RDD, the name of its source."""

    catalyst: Catalyst
    plan: JavaObject
    sources: dict[int, str]


def _planned(spark: SparkSession, definition: ViewDefinition, samples: Mapping[str, Sample]) -> _Planned:
    from headrace.pipeline.decoding.events import good_rows
    from headrace.pipeline.decoding.source_rows import current_rows, decode_source

    rows: dict[str, DataFrame] = {}
    sources: dict[int, str] = {}
    for source in definition.inputs:
        raw = frame_of(spark, samples[source.name])
        sources[int(raw._jdf.queryExecution().analyzed().rdd().id())] = source.name
        rows[source.name] = current_rows(source, good_rows(decode_source(source, raw)))
    if definition.sources:
        query = apply_query(spark, definition, None, rows)
    else:
        query = apply_query(spark, definition, rows[definition.inputs[0].name])
    catalyst = Catalyst(spark)
    plan = catalyst.frame(catalyst.analyzed(query))._jdf.queryExecution().optimizedPlan()
    return _Planned(catalyst, plan, sources)


def _joins(planned: _Planned) -> list[_Join]:
    plans = (planned.plan, *items(planned.plan.subqueriesAll()))
    nodes = [node for plan in plans for node in walk(plan) if kind(node) == "Join"]
    joins = []
    for node in nodes:
        if any(side.maxRows().isDefined() and side.maxRows().get() <= 1 for side in children(node)):
            continue  # with one row, nothing multiplies
        found = planned.catalyst.equal_keys(node)
        joins.append(_Join(node, (found.left, found.right), found.has_more))
    return joins


def _warning(planned: _Planned, join: _Join, samples: Mapping[str, Sample]) -> JoinWarning | None:
    left, right = (
        _side(planned, plan, keys, samples) for plan, keys in zip(children(join.node), join.keys, strict=True)
    )
    both = f"{left.shown} with itself" if left.names == right.names else f"{left.shown} with {right.shown}"
    known = left.rows is not None and right.rows is not None
    if not join.keys[0]:
        pairs = int(left.rows * right.rows) if left.rows is not None and right.rows is not None else None
        size = f", about {left.rows:,.0f} times {right.rows:,.0f} pairs now" if known else ""
        text = (
            f"the join of {both} has no equality: every row of one side is compared with every row of the other{size}"
        )
        return JoinWarning(text, None if join.how in _SELECTING else pairs)
    if join.how in _SELECTING or min(left.rows_per_key, right.rows_per_key) < _REPEATS:
        return None
    rows = None if left.rows is None else int(left.rows * right.rows_per_key)
    size = "" if rows is None else f"; the join has up to about {rows:,} rows now"
    less = ", fewer if its other conditions remove pairs" if join.has_more and size else ""
    return JoinWarning(
        f"the keys of the join of {both} ({_equalities(join)}) repeat on both sides: about {left.rows_per_key:,.0f} "
        f"rows per key on the left, and {right.rows_per_key:,.0f} on the right{size}{less}",
        rows,
    )


def _equalities(join: _Join) -> str:
    return ", ".join(f"{one.sql()} = {other.sql()}" for one, other in zip(*join.keys, strict=True))


def _side(planned: _Planned, plan: JavaObject, keys: list[JavaObject], samples: Mapping[str, Sample]) -> Side:
    nodes = walk(plan)
    read = [planned.sources.get(int(node.rdd().id())) for node in nodes if kind(node) == "LogicalRDD"]
    names = tuple(dict.fromkeys(name for name in read if name is not None))
    count, distinct = _counts(planned.catalyst, plan, keys)
    if count == 0:
        return Side(names, None, 0.0)
    if len(read) != 1 or len(names) != 1:
        return Side(names, None, count / distinct)
    sample = samples[names[0]]
    if not {kind(node) for node in nodes} <= _ONE_ROW_PER_ROW:  # groups, or the rows of a table
        return Side(names, estimated_distinct(len(sample.records), count, sample.total), count / distinct)
    rows = count * sample.total / len(sample.records)
    return Side(names, rows, rows / estimated_distinct(count, distinct, rows))


def _counts(catalyst: Catalyst, plan: JavaObject, keys: list[JavaObject]) -> tuple[int, int]:
    """The number of rows whose keys are not NULL, and of their distinct keys."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = [catalyst.column(key).alias(f"k{number}") for number, key in enumerate(keys)]
    rows = catalyst.frame(plan).select(F.lit(1).alias("one"), *columns).dropna()
    names = [name for name in rows.columns if name != "one"]
    groups = rows.groupBy(*names).count() if names else rows.withColumn("count", F.lit(1).cast("BIGINT"))
    found = groups.agg(F.coalesce(F.sum("count"), F.lit(0)).alias("rows"), F.count(F.lit(1)).alias("keys")).first()
    assert found is not None
    return int(found["rows"]), int(found["keys"])
