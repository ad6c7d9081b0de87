"""Asks Spark how many records the jobs of a version have read so far.

Spark counts the records of a task when the task ends, so the number grows task by task. It is only for display: a batch
commits all of its records or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.pipeline.spark.catalyst import JavaObject, children, kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_T = TypeVar("_T")


def jobs_with_tag(spark: SparkSession, tag: str) -> list[int]:
    """The jobs with this tag that Spark remembers, running or ended."""
    return _ask(lambda: list(_context(spark).statusTracker().getJobIdsForTag(tag)), [])


def running_jobs_of_group(spark: SparkSession, group: str) -> list[int]:
    """The running jobs of a group. The group of a stream's jobs is the id of its run."""
    return _ask(lambda: _running(spark, group), [])


def records_read(spark: SparkSession, jobs: Iterable[int]) -> int:
    """How many records the ended tasks of these jobs have read; 0 if Spark does not know."""
    return sum(_ask(partial(_read_by, spark, job), 0) for job in jobs)


def scanned_rows(frame: DataFrame) -> int:
    """How many rows the sources of a frame have returned. The frame was computed before."""
    return _scanned(frame._jdf.queryExecution().executedPlan())


def _scanned(node: JavaObject) -> int:
    what = kind(node)
    if what == "AdaptiveSparkPlanExec":
        return _scanned(node.executedPlan())
    if what.endswith("QueryStageExec"):
        return _scanned(node.plan())
    if what == "BatchScanExec":
        return int(node.metrics().get("numOutputRows").get().value())
    return sum(map(_scanned, children(node)))


def _running(spark: SparkSession, group: str) -> list[int]:
    store: JavaObject = _context(spark).statusStore()
    found = list(_context(spark).statusTracker().getJobIdsForGroup(group))
    return [job for job in found if str(store.job(job).status()) == "RUNNING"]


def _read_by(spark: SparkSession, job: int) -> int:
    store: JavaObject = _context(spark).statusStore()
    stages: JavaObject = store.job(job).stageIds().iterator()
    total = 0
    while stages.hasNext():
        total += _ask(partial(_read_in_stage, store, stages.next()), 0)
    return total


def _read_in_stage(store: JavaObject, stage: int) -> int:
    return int(store.lastStageAttempt(stage).inputRecords())


def _context(spark: SparkSession) -> JavaObject:
    return spark.sparkContext._jsc.sc()


def _ask(question: Callable[[], _T], otherwise: _T) -> _T:
    """Returns ``otherwise`` if Spark does not know the job or stage (any more), or has ended."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        return question()
    except (Py4JError, AttributeError):  # a stopped session has no context
        return otherwise
