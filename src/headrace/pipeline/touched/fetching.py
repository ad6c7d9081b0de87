"""Computes the jobs of a build and fetches their results, while the driver inserts what it has.

Three things go on at the same time: Spark computes a job, a thread fetches the results of an earlier job, and the
caller inserts a table into the database. Without the thread, the caller waited for Spark before each table.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import Full, Queue
from threading import Event
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

#: Tables that were fetched and wait to be inserted.
_TABLES_AHEAD = 2
_POLL_S = 0.2
_T = TypeVar("_T")


class Job(Protocol):
    """A Spark job whose results Spark keeps from ``start`` to ``close``."""

    def start(self) -> None: ...

    def tables(self) -> Iterator[pa.Table]: ...

    def close(self) -> None: ...


def fetched_ahead(spark: SparkSession, jobs: Sequence[tuple[Job, _T]]) -> Generator[tuple[pa.Table, _T], None, None]:
    """The tables of all jobs in their order, each with what was given with its job.

    Close the generator: that ends the threads. An error of a job is raised in the place of its tables.
    """
    from pyspark import inheritable_thread_target

    found: Queue[tuple[pa.Table, _T] | None] = Queue(_TABLES_AHEAD)
    is_closed = Event()

    def in_thread(threads: ThreadPoolExecutor, work: Callable[[], None]) -> Future[None]:
        return threads.submit(inheritable_thread_target(spark)(work))

    def put(item: tuple[pa.Table, _T] | None) -> None:
        while not is_closed.is_set():
            try:
                found.put(item, timeout=_POLL_S)
                return
            except Full:
                continue

    def fetch() -> None:
        try:
            for (job, given), is_computed in zip(jobs, computed, strict=True):
                is_computed.result()
                for table in job.tables():
                    put((table, given))
                    if is_closed.is_set():
                        return
                job.close()
        finally:
            put(None)

    with ExitStack() as stack:
        for job, _ in jobs:
            stack.callback(job.close)
        computing = stack.enter_context(ThreadPoolExecutor(1))
        fetching = stack.enter_context(ThreadPoolExecutor(1))
        computed: list[Future[None]] = []
        stack.callback(lambda: [each.cancel() for each in computed])
        stack.callback(is_closed.set)
        computed += [in_thread(computing, job.start) for job, _ in jobs]
        is_fetched = in_thread(fetching, fetch)
        while (item := found.get()) is not None:
            yield item
        is_fetched.result()
