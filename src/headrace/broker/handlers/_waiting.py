"""Answers that come later, by a callback."""

from asyncio import Future, get_running_loop
from collections.abc import Callable
from typing import TypeVar

from headrace.broker.network.request import Request

T = TypeVar("T")


async def answer_of(ask: Callable[[Callable[[T], None]], None]) -> T:
    """Gives ``ask`` a callback, and waits until it is called. What ``ask`` raises is raised here."""
    answer: Future[T] = get_running_loop().create_future()

    def respond(value: T) -> None:
        if not answer.done():  # else the broker stops, and nobody waits any more
            answer.set_result(value)

    ask(respond)
    return await answer


def host_of(request: Request) -> str:
    """The client's address as Kafka shows it in groups: ``/127.0.0.1``."""
    return "/" + request.connection.peer.rpartition(":")[0].strip("[]")
