"""The event loop that brokers and clients run on: uvloop's where it is installed. And the end of tasks on it."""

import asyncio
from collections.abc import Collection


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def cancel_and_wait(tasks: Collection[asyncio.Task[None]]) -> None:
    """Returns when all are over. Nobody hears any more of what one of them raises now."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
