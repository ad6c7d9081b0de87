"""Waits for an answer that comes by a callback."""

from asyncio import Future, get_running_loop
from collections.abc import Callable
from typing import TypeVar

from headrace.broker.network.request import Request

T = TypeVar("T")


async def answer_of(ask: Callable[[Callable[[T], None]], None]) -> T:
    """Calls ``ask`` with a callback, and waits until the callback is called. Raises what ``ask`` raises."""
    answer: Future[T] = get_running_loop().create_future()

    def respond(value: T) -> None:
        if not answer.done():  # it is done if the broker stops
            answer.set_result(value)

    ask(respond)
    return await answer


def host_of(request: Request) -> str:
    """Returns the client's address as Kafka shows it in groups: ``/127.0.0.1``."""
    return "/" + request.connection.host
