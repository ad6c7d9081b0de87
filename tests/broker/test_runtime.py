"""The threads for slow operations, whose number changes while they work."""

import asyncio
import threading

from broker_harness import BROKER, Client

from headrace import Broker
from headrace.broker.runtime import BrokerRuntime
from headrace.testing import ManualClock

SET = 0


async def test_operations_of_the_earlier_threads_are_completed():
    runtime = BrokerRuntime(asyncio.get_running_loop(), ManualClock(), io_threads=1)
    release = threading.Event()
    slow = [asyncio.ensure_future(runtime.run_blocking(lambda number=number: release.wait(10) and number))
            for number in (1, 2)]  # fmt: skip
    await asyncio.sleep(0)
    runtime.resize(2)
    assert await runtime.run_blocking(lambda: 3) == 3
    release.set()
    assert await asyncio.gather(*slow) == [1, 2]
    runtime.stop()


def test_the_number_changes_at_run_time():
    with Broker(config={"num.io.threads": 2}) as broker, Client(broker.bootstrap_servers) as client:
        assert client.alter(BROKER, "", ("num.io.threads", SET, "4")).error_code == 0
        assert broker.core.runtime._threads._max_workers == 4
