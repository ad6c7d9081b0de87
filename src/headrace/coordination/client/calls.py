"""One call of ``zookeeper_client.py`` that waits for its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.coordination.interface import CoordinationError

if TYPE_CHECKING:
    import asyncio

    from headrace.coordination.client.kazoo_requests import Request

T = TypeVar("T")


class Call(Generic[T]):
    """A request, and the future of its answer."""

    __slots__ = ("answer", "is_read", "on_answer", "request", "sent_ns")

    def __init__(
        self, request: Request[T], answer: asyncio.Future[T], on_answer: Callable[[T], None] | None, *, is_read: bool
    ) -> None:
        self.request = request
        self.answer = answer
        #: Called with the answer, before anything that was received later is processed.
        self.on_answer = on_answer
        self.is_read = is_read
        self.sent_ns = 0

    def succeed(self, answer: T) -> None:
        if self.answer.done():
            return  # the caller has stopped waiting
        if self.on_answer is not None:
            self.on_answer(answer)
        self.answer.set_result(answer)

    def fail(self, error: CoordinationError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
