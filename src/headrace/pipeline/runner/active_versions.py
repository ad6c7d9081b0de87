"""Holds the versions that run in this process, and stops them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from logging import getLogger

from headrace.pipeline.serving.catalog import Catalog, Version, VersionEvent, VersionKey
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.failures import summary_of
from headrace.pipeline.version.running_version import RunningVersion
from headrace.pipeline.version.work_in_flight import Work

logger = getLogger("headrace.views")


VersionFactory = Callable[[RunContext, Version], RunningVersion]


@dataclass(frozen=True)
class ActiveVersion:
    """A version that runs in this process.

    :param commits: how many commits were counted when the version started.
    """

    running: RunningVersion
    since_ms: int
    commits: int


def unfinished_work(active: dict[VersionKey, ActiveVersion]) -> dict[VersionKey, frozenset[Work]]:
    """Returns the running work of Spark, per version."""
    return {key: each.running.work.unfinished() for key, each in active.items()}


def stop_all(active: dict[VersionKey, ActiveVersion], catalog: Catalog) -> None:
    """Stops all versions at the same time, sets their state in the catalog, and removes them from ``active``."""
    if not active:
        return
    with ThreadPoolExecutor(len(active)) as pool:
        list(pool.map(lambda each: stop_quietly(each.running), active.values()))
    for key in list(active):
        try:
            catalog.set_state(*key, VersionEvent.STOPPED)
        except ServingError as error:  # the next runner sets the state when it starts
            logger.debug("%s v%d: cannot write its state: %s", *key, error)
        del active[key]


def stop_quietly(running: RunningVersion) -> None:
    try:
        running.stop()
    except Exception as error:  # noqa: BLE001  the version has ended either way: everything that counts is committed
        logger.warning("%s: did not stop cleanly: %s", running.label, summary_of(error))
