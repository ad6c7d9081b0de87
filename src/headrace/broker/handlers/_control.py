"""Code that the APIs share that only the controller answers: ElectLeaders and the reassignments."""

from __future__ import annotations

import sys
from asyncio import Task, ensure_future, wait
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from headrace.broker.network.slices import in_groups
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import ErrorCode, KafkaError, RequestTimedOut
from headrace.protocol.wire.large_messages import ElementArray

T = TypeVar("T")

_ITEMS_PER_LIST = 100


async def within(timeout_ms: int, work: Coroutine[Any, Any, T]) -> T:
    """Waits for the controller. If the time is up, the controller still continues its work.

    :raises RequestTimedOut: if the time is up.
    """
    task = ensure_future(work)
    try:
        await wait([task], timeout=max(0, timeout_ms) / 1000)
    except BaseException:
        task.cancel()
        raise
    if not task.done():
        task.add_done_callback(_read_outcome)
        raise RequestTimedOut(f"the controller needs longer than {timeout_ms} ms; it continues in the background")
    return task.result()


def _read_outcome(task: Task[Any]) -> None:
    """Keeps asyncio from logging an exception that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def by_topic(outcomes: Mapping[TopicPartition, T]) -> dict[str, list[tuple[int, T]]]:
    topics: dict[str, list[tuple[int, T]]] = defaultdict(list)
    for (topic, index), outcome in outcomes.items():
        topics[topic].append((index, outcome))
    return topics


def code_and_message(error: KafkaError | None) -> dict[str, object]:
    if error is None:
        return {"error_code": ErrorCode.none, "error_message": None}
    return {"error_code": error.code, "error_message": str(error) or None}


def batches(topics: Sequence[Any], items: Iterable[T]) -> Iterator[list[T]]:
    """Yields the items of a request in lists for the controller: all at once, or a few at a time if there are many."""
    is_large = isinstance(topics, ElementArray)
    groups = in_groups(items, _ITEMS_PER_LIST if is_large else sys.maxsize)
    yield next(groups, [])  # a broker that is not the controller has to refuse an empty request, too
    yield from groups
