"""A future that calls its waiter at once, on the stack of the code that sets the result.

For a normal future the loop calls the waiters in its next turn. The Fetch of a follower acknowledges a Produce with
acks=all. A prompt future answers that Produce before the rest of the Fetch is handled, so the producer waits less.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class PromptFuture(asyncio.Future[T]):
    #: Called when the result is set. ``add_done_callback`` would call in the next turn of the loop.
    on_result: "Callable[[asyncio.Future[T]], None] | None" = None

    def set_result(self, result: T, /) -> None:
        super().set_result(result)
        if self.on_result is not None:
            self.on_result(self)
