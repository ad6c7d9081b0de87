"""The network threads of one listener, as many as ``num.network.threads`` says. The number changes at run time.

New connections go to the threads in turn. A thread starts with its first connection. If the number becomes smaller, the
last threads hand their connections to the others; the connections stay open. Kafka closes them.

A thread that waits for the interpreter lock gets it after the switch interval of Python, if the other thread does not
wait for something itself. A TLS request needs the lock several times: after each read from the socket, after each
decrypted record. With the default of 5 ms, a request of 1 MB (64 records) could wait 320 ms beside a loop that is busy.
So the first network thread shortens the interval to ``SWITCH_INTERVAL_S``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial

from headrace.broker.network.processor import Processor

#: A switch costs a few microseconds, so this costs a percent or two, and only while several threads compute.
SWITCH_INTERVAL_S = 0.0005


class NetworkThreads:
    """Its methods are called on the loop's thread."""

    def __init__(
        self, listener_name: str, loop: asyncio.AbstractEventLoop, handle_requests: Callable[[], None], count: int
    ) -> None:
        """
        :param handle_requests: handles the requests that are in the queue, on the loop's thread.
        """
        self._listener_name = listener_name
        self._loop = loop
        self._handle_requests = handle_requests
        self._count = count
        self._processors: list[Processor] = []
        self._retiring: set[Processor] = set()
        self._retired: list[Processor] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._processors)

    def next(self) -> Processor:
        """Returns the thread of the next connection."""
        number = self._next % self._count
        self._next = number + 1
        if number >= len(self._processors):
            self._add_thread()
            number = len(self._processors) - 1
        return self._processors[number]

    def _add_thread(self) -> None:
        sys.setswitchinterval(min(SWITCH_INTERVAL_S, sys.getswitchinterval()))
        name = f"headrace-network-{self._listener_name}-{len(self._processors)}"
        processor = Processor(name, self._loop, self._handle_requests)
        processor.start()
        self._processors.append(processor)

    def resize(self, count: int) -> None:
        self._count = count
        removed, self._processors = self._processors[count:], self._processors[:count]
        for number, processor in enumerate(removed):
            self._retiring.add(processor)
            processor.retire(self._processors[number % count], partial(self._moved, processor))

    def _moved(self, processor: Processor) -> None:
        self._retiring.discard(processor)
        self._retired.append(processor)
        if not self._retiring:  # none of them can get connections from another one any more
            for one in self._retired:
                one.stop()
            self._retired.clear()

    def stop(self) -> None:
        """Ends the threads. All connections have been closed."""
        for processor in (*self._processors, *self._retiring, *self._retired):
            processor.stop()
