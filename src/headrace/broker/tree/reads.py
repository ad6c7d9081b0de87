"""Reads many znodes in groups: fast over one connection, and the event loop serves others between two groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

#: How many reads run at the same time.
AT_ONCE = 100


async def read_each(
    read: Callable[[Item], Awaitable[Found]], items: Sequence[Item]
) -> AsyncIterator[tuple[Item, Found]]:
    """Yields each item with what was read for it, in order."""
    for start in range(0, len(items), AT_ONCE):
        some = items[start : start + AT_ONCE]
        for item, found in zip(some, await asyncio.gather(*map(read, some)), strict=True):
            yield item, found
