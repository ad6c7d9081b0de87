"""Limits how much one request may change the number of threads of a pool, as Kafka does.

A request may at most double or halve a pool, so that a typing error does little harm. The rule compares the values in
force before and after the request, so it also holds for a request that removes a setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

_POOLS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
_OF_LISTENER = "num.network.threads"


def check_thread_counts(present: BrokerConfig, future: BrokerConfig) -> None:
    """
    :raises InvalidRequest: if a pool would have no thread, or would become too large or too small at once.
    """
    for name, before, after in _changes(present, future):
        problem = _problem(before, after)
        if problem is not None:
            raise InvalidRequest(f"Dynamic update of {name} from {before} to {after}: the new value must be {problem}")


def _changes(present: BrokerConfig, future: BrokerConfig) -> Iterator[tuple[str, int, int]]:
    for name in _POOLS:
        yield name, present.int(name), future.int(name)
    stay = {listener.name for listener in future.listeners.bound}
    for listener in present.listeners.bound:
        if listener.name in stay:
            own = future.of_listener(listener.name)
            yield own.name_of(_OF_LISTENER), present.of_listener(listener.name).int(_OF_LISTENER), own.int(_OF_LISTENER)


def _problem(before: int, after: int) -> str | None:
    if after == before:
        return None
    if after < 1:
        return "at least 1"
    if after < before // 2:
        return "at least half of the current one"
    if after > max(before, 1) * 2:
        return "at most twice the current one"
    return None
