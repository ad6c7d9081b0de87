"""The results of jobs come in order, while further jobs are computed; an error or an early end stops the rest."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from headrace.pipeline.touched.fetching import fetched_ahead


class FakeJob:
    def __init__(self, *tables: str, error: Exception | None = None) -> None:
        self._tables, self._error = tables, error
        self.is_started = self.is_closed = False

    def start(self) -> None:
        self.is_started = True
        if self._error is not None:
            raise self._error

    def tables(self):
        assert self.is_started
        yield from self._tables

    def close(self) -> None:
        self.is_closed = True


def test_the_tables_of_all_jobs_come_in_order(spark):
    jobs = [(FakeJob("a", "b", "c"), 1), (FakeJob(), 2), (FakeJob("d"), 3)]
    with closing(fetched_ahead(spark, jobs)) as found:
        assert list(found) == [("a", 1), ("b", 1), ("c", 1), ("d", 3)]
    assert all(job.is_closed for job, _ in jobs)


def test_an_error_comes_in_the_place_of_its_tables(spark):
    jobs = [(FakeJob("a"), 1), (FakeJob("b", error=ValueError("no memory")), 2), (FakeJob("c"), 3)]
    seen = []
    with pytest.raises(ValueError, match="no memory"), closing(fetched_ahead(spark, jobs)) as found:
        seen.extend(found)
    assert seen == [("a", 1)]
    assert all(job.is_closed for job, _ in jobs)


def test_a_caller_that_ends_early_ends_the_threads(spark):
    before = threading.active_count()
    jobs = [(FakeJob(*"abcdefgh"), 1), (FakeJob("i"), 2)]
    with closing(fetched_ahead(spark, jobs)) as found:
        assert next(found) == ("a", 1)
    assert threading.active_count() == before
    assert all(job.is_closed for job, _ in jobs)
