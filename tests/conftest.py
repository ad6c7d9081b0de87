"""Fixtures for all tests, and the settings of Hypothesis.

A busy machine may pause a test, so Hypothesis has no deadline for an example. ``postgresql`` and ``zookeeper`` are real
servers that all tests share; ``mortal_postgresql`` and ``mortal_zookeeper`` are for one test, which may kill them.
``open_logs`` opens log managers.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from headrace.log.log_manager import LogManager
    from headrace.testing.postgresql_process import PostgresqlProcess
    from headrace.testing.zookeeper_process import ZookeeperProcess

settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")

# A background job of a shell script ignores SIGINT, and so would the processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Groups of pytest-xdist that take minutes, the longest first. They begin first, so that none runs alone at the end.
_LONG_GROUPS = ("views", "spark", "cluster")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def turn(item: pytest.Item) -> int:
        mark = item.get_closest_marker("xdist_group")
        kind = "" if mark is None else str(mark.args[0]).partition("-")[0]
        return _LONG_GROUPS.index(kind) if kind in _LONG_GROUPS else len(_LONG_GROUPS)

    items.sort(key=turn)


def pytest_collection_finish() -> None:
    """Exempts modules and collected tests from garbage collection, which took a tenth of the processor time."""
    from headrace.runtime.memory import collect_rarely

    gc.collect()
    collect_rarely()


@contextmanager
def _running_postgresql() -> Iterator[PostgresqlProcess]:
    from headrace.testing.postgresql_process import PostgresqlMissing, PostgresqlProcess

    try:
        server = PostgresqlProcess()
        server.start()
    except PostgresqlMissing as error:
        pytest.skip(str(error))
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlProcess]:
    """One PostgreSQL for all tests that do not stop it."""
    with _running_postgresql() as server:
        yield server


@pytest.fixture
def mortal_postgresql() -> Iterator[PostgresqlProcess]:
    """A PostgreSQL for one test, which may kill it."""
    with _running_postgresql() as server:
        yield server


@contextmanager
def _running_zookeeper(folder: Path) -> Iterator[ZookeeperProcess]:
    from headrace.testing.zookeeper_process import ZookeeperMissing, ZookeeperProcess

    try:
        process = ZookeeperProcess(folder)
    except ZookeeperMissing as error:
        pytest.skip(str(error))
    with process:
        yield process


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperProcess]:
    """A real ZooKeeper for all tests that do not stop it. Each test uses a path of its own."""
    with _running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as process:
        yield process


@pytest.fixture
def mortal_zookeeper(tmp_path: Path) -> Iterator[ZookeeperProcess]:
    with _running_zookeeper(tmp_path / "zookeeper") as process:
        yield process


@pytest.fixture
def open_logs() -> Iterator[Callable[..., LogManager]]:
    """Opens log managers, and abandons them after the test, as a crash does."""
    from headrace.log.config import LogConfig
    from headrace.log.log_manager import LogManager
    from headrace.testing import ManualClock

    opened = []

    def open_(folder: Path, broker_id: int = 1) -> LogManager:
        clock = ManualClock()
        manager = LogManager([folder], default_config=LogConfig(), clock=clock, broker_id=broker_id, cluster_id="c")
        manager.load()
        opened.append(manager)
        return manager

    yield open_
    for manager in opened:
        manager.abandon()
