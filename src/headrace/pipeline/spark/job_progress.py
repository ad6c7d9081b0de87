"""Asks Spark how many records the jobs of a version have read so far.

Spark counts the records that a task has read when the task ends, so the number grows task by task. It is for people who
watch a long batch: a batch commits all of its records or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.pipeline.spark.catalyst import Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_T = TypeVar("_T")


def jobs_with_tag(spark: SparkSession, tag: str) -> list[int]:
    """All that Spark remembers, whether they run or have ended."""
    return _asked(lambda: list(_context(spark).statusTracker().getJobIdsForTag(tag)), [])


def running_jobs_of_group(spark: SparkSession, group: str) -> list[int]:
    """A stream's jobs have the id of its run as their group."""
    return _asked(lambda: _running(spark, group), [])


def records_read(spark: SparkSession, jobs: Iterable[int]) -> int:
    """By the tasks of these jobs that have ended. 0 where Spark does not know."""
    return sum(_asked(partial(_read_by, spark, job), 0) for job in jobs)


def _running(spark: SparkSession, group: str) -> list[int]:
    store: Java = _context(spark).statusStore()
    found = list(_context(spark).statusTracker().getJobIdsForGroup(group))
    return [job for job in found if str(store.job(job).status()) == "RUNNING"]


def _read_by(spark: SparkSession, job: int) -> int:
    store: Java = _context(spark).statusStore()
    stages: Java = store.job(job).stageIds().iterator()
    total = 0
    while stages.hasNext():
        total += _asked(partial(_read_in_stage, store, stages.next()), 0)
    return total


def _read_in_stage(store: Java, stage: int) -> int:
    return int(store.lastStageAttempt(stage).inputRecords())


def _context(spark: SparkSession) -> Java:
    return spark.sparkContext._jsc.sc()


def _asked(question: Callable[[], _T], otherwise: _T) -> _T:
    """Spark raises for jobs and stages that it does not know yet or any more, and py4j if Spark has ended."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        return question()
    except (Py4JError, AttributeError):  # a session that was stopped has no context
        return otherwise
