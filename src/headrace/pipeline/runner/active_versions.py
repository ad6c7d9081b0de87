"""Makes the versions that are to work in this process, and holds those that do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from logging import getLogger

from headrace.pipeline.runner.retries import Key
from headrace.pipeline.serving.catalog import Catalog, Event, Version
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.version.context import Surroundings
from headrace.pipeline.version.failures import summary_of
from headrace.pipeline.version.running_version import RunningVersion
from headrace.pipeline.version.work_in_flight import Work

logger = getLogger("headrace.views")


Make = Callable[[Surroundings, Version], RunningVersion]


def running_version(around: Surroundings, version: Version) -> RunningVersion:
    """Of the architecture that its definition names."""
    if version.definition["architecture"] == "lambda":
        from headrace.pipeline.lambda_.view import LambdaView

        return LambdaView(around, version)
    from headrace.pipeline.kappa.view import KappaView

    return KappaView(around, version)


@dataclass(frozen=True)
class AtWork:
    """:param commits: how many there were when it started."""

    running: RunningVersion
    since_ms: int
    commits: int


def in_flight(at_work: dict[Key, AtWork]) -> dict[Key, frozenset[Work]]:
    """What each of them has Spark do."""
    return {key: each.running.work.suspects() for key, each in at_work.items()}


def stop_all(at_work: dict[Key, AtWork], catalog: Catalog) -> None:
    """All at the same time; the catalog says so, and none is left."""
    if not at_work:
        return
    with ThreadPoolExecutor(len(at_work)) as pool:
        list(pool.map(lambda each: stop_quietly(each.running), at_work.values()))
    for key in list(at_work):
        try:
            catalog.set_state(*key, Event.STOPPED)
        except ServingError as error:  # it is said again when the next runner starts
            logger.debug("%s v%d: its state could not be written: %s", *key, error)
        del at_work[key]


def stop_quietly(running: RunningVersion) -> None:
    try:
        running.stop()
    except Exception as error:  # noqa: BLE001  it is over either way: all that counts is in transactions
        logger.warning("%s: did not stop cleanly: %s", running.who, summary_of(error))
