"""Creates the event loop of brokers and clients (that of uvloop if it is installed), and cancels tasks on it."""

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
    """Cancels tasks and waits until all of them have ended. Exceptions that they raise meanwhile are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
