"""A future whose result is taken up at once, on the stack of whoever sets it.

A loop calls those who wait for a future in its next turn. The acknowledgement of a produce comes out of a follower's
fetch; by then the producer has waited long enough, and what else there is to do with that fetch can wait for it.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class PromptFuture(asyncio.Future[T]):
    #: Called with the result's coming, instead of what ``add_done_callback`` would add.
    on_result: "Callable[[asyncio.Future[T]], None] | None" = None

    def set_result(self, result: T, /) -> None:
        super().set_result(result)
        if self.on_result is not None:
            self.on_result(self)
