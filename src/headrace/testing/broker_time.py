"""Moves the time of a broker that runs on a :class:`ManualClock`, and waits for everything that became due.

::

    clock = ManualClock()
    with Broker(clock=clock, config={"log.retention.ms": 60_000}) as broker:
        ...
        pass_time(broker, clock, by_ms=3_600_000)   # retention has run when this returns
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.testing.clock import ManualClock

if TYPE_CHECKING:
    from headrace import Broker

_PATIENCE_S = 10.0


def pass_time(broker: Broker, clock: ManualClock, by_ms: int) -> None:
    """Advances the clock and runs what is due then: timeouts, retention, compaction, expiry.

    Call it from another thread than the broker's: after ``with Broker(...)``, not inside ``async with``.

    :raises TimeoutError: if the broker's work takes longer than 10 s.
    """
    core = broker.core

    async def advance() -> None:
        clock.advance(by_ms)
        core.runtime.timer.advance()
        await asyncio.sleep(0)
        await core.maintenance.settle()

    asyncio.run_coroutine_threadsafe(advance(), core.runtime.loop).result(_PATIENCE_S)
