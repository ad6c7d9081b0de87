"""What the APIs that only the controller answers share."""

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

_PIECE = 100


async def within(timeout_ms: int, work: Coroutine[Any, Any, T]) -> T:
    """What the controller has begun goes on when the time is up.

    :raises RequestTimedOut:
    """
    task = ensure_future(work)
    try:
        await wait([task], timeout=max(0, timeout_ms) / 1000)
    except BaseException:
        task.cancel()
        raise
    if not task.done():
        task.add_done_callback(_forget)
        raise RequestTimedOut(f"it is not done within {timeout_ms} ms, and goes on")
    return task.result()


def _forget(task: Task[Any]) -> None:
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


def pieces(topics: Sequence[Any], items: Iterable[T]) -> Iterator[list[T]]:
    """The items of a request's topics, to be given to the controller; those of a large request a few at a time."""
    is_large = isinstance(topics, ElementArray)
    groups = in_groups(items, _PIECE if is_large else sys.maxsize)
    yield next(groups, [])  # whoever is not the controller says so to an empty request, too
    yield from groups
