"""A network thread: a selector, a queue of responses, and the TLS channels that it serves.

This is Kafka's processor. It does handshakes, decrypts and cuts frames, hands whole requests to the loop's thread, and
encrypts and sends the responses that come from there.

The interpreter lock moves between the threads at each wait, so the number of wake-ups decides the speed:

- The thread takes all events that are ready, then all tasks, then waits again.
- Calls for the loop are collected. One ``call_soon_threadsafe`` hands over all of them.
- The loop's thread wakes this thread only if it sleeps.
- Sockets are watched for edges, in both directions. So no request needs ``epoll_ctl``.

A handshake takes up to a millisecond of CPU. Between two handshakes the thread serves all established connections that
are ready, so a flood of new connections slows down the handshakes, and nothing else.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from logging import getLogger
from threading import Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from headrace.broker.network.tls_channel import TlsChannel

logger = getLogger(__name__)

_EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
_EVENTS_PER_TURN = 64
#: Where all connections of the thread receive and read files, one after the other.
_BUFFER_BYTES = 256 * 1024
_LOOP_BUFFER_BYTES = 32 * 1024

#: More calls of a network thread wait for the next iteration of the loop: a thousand connections may end at once.
CALLS_PER_ITERATION = 64

Call = Callable[[], None]
#: A method of a channel, with its channel.
Task = tuple["TlsChannel", Callable[["TlsChannel"], None]]


class CallsToLoop:
    """Runs functions on the loop's thread, many of them with one wake-up. If one fails, the others run all the same.

    :param then: called after the functions, in the same iteration of the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, then: Call) -> None:
        self._loop = loop
        self._then = then
        self._calls: deque[Call] = deque()
        self._is_scheduled = False

    def add(self, call: Call) -> None:
        self._calls.append(call)

    def hand_over(self) -> None:
        if self._calls and not self._is_scheduled:
            self._is_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._run)
            except RuntimeError:  # the loop has ended
                self._calls.clear()

    def _run(self) -> None:
        self._is_scheduled = False
        calls = self._calls
        for _ in range(min(len(calls), CALLS_PER_ITERATION)):
            try:
                calls.popleft()()
            except Exception:  # a fault of ours: the other connections must not wait for their turn
                logger.exception("the loop failed to run a call of a network thread")
        self._then()
        if calls and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)


class Processor:
    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, handle_requests: Call) -> None:
        """
        :param handle_requests: handles the requests that are in the queue, on the loop's thread.
        """
        self.name = name
        self.loop = loop
        self.calls_to_loop = CallsToLoop(loop, handle_requests)
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        #: Where the loop's thread receives small requests.
        self.loop_buffer = memoryview(bytearray(_LOOP_BUFFER_BYTES))
        self._epoll = select.epoll()
        self._wake_up = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_up, select.EPOLLIN)
        #: Held to write to the descriptor and to close it: its number may soon be the number of another file.
        self._wake_up_lock = Lock()
        self._channels: dict[int, TlsChannel] = {}
        self._tasks: deque[Task] = deque()
        #: Channels whose handshake can continue.
        self._handshakes: deque[TlsChannel] = deque()
        #: Who takes the channels over when this thread ends before the listener.
        self._successor: Processor | None = None
        self._on_moved: Call | None = None
        self._is_asleep = False
        self._is_stopping = False
        self._thread: Thread | None = None

    def __len__(self) -> int:
        return len(self._channels)

    # -- called on the loop's thread

    def start(self) -> None:
        self._thread = Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def retire(self, successor: Processor, on_moved: Call) -> None:
        """Hands all channels to another thread. Connections stay open. Then calls back on the loop's thread, which may
        stop this thread."""
        self._on_moved = on_moved
        self._successor = successor
        self._wake()

    def stop(self) -> None:
        """Ends the thread after the tasks that it has. The channels have been closed, or have moved."""
        self._is_stopping = True
        self._wake()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    # -- called on any thread

    def do(self, channel: TlsChannel, task: Callable[[TlsChannel], None]) -> None:
        """Runs a method of a channel on this thread."""
        self._tasks.append((channel, task))
        if self._is_asleep:
            self._wake()

    def stop_watching(self, channel: TlsChannel) -> None:
        """Reports no more events of a channel, except for those that were taken already."""
        with suppress(OSError):  # it was not watched, or the thread has ended
            self._epoll.unregister(channel.fileno())

    def _wake(self) -> None:
        self._is_asleep = False
        with self._wake_up_lock:
            if self._wake_up >= 0:
                os.eventfd_write(self._wake_up, 1)

    # -- called on this thread

    def watch(self, channel: TlsChannel) -> None:
        descriptor = channel.fileno()
        self._channels[descriptor] = channel
        try:
            self._epoll.register(descriptor, _EVENTS)
        except FileExistsError:
            self._epoll.modify(descriptor, _EVENTS)

    def forget(self, channel: TlsChannel) -> None:
        """Does not watch the channel any more. The caller closes the socket after this call."""
        descriptor = channel.fileno()
        if self._channels.pop(descriptor, None) is not None:
            self.stop_watching(channel)

    def shake_hands_later(self, channel: TlsChannel) -> None:
        self._handshakes.append(channel)

    def _run(self) -> None:
        try:
            while not (self._is_stopping and not self._tasks):
                self._take_turn()
        finally:
            with self._wake_up_lock:
                descriptor, self._wake_up = self._wake_up, -1
                self._epoll.close()
                os.close(descriptor)

    def _take_turn(self) -> None:
        for descriptor, events in self._wait():
            channel = self._channels.get(descriptor)
            if channel is not None:
                self._guarded(channel, type(channel).on_events, events)
            elif descriptor == self._wake_up:
                os.eventfd_read(descriptor)
        for _ in range(len(self._tasks)):
            channel, task = self._tasks.popleft()
            if channel.processor is self:
                self._guarded(channel, task)
            else:  # the channel has moved meanwhile
                channel.processor.do(channel, task)
        if self._handshakes:
            channel = self._handshakes.popleft()
            if channel.processor is self:  # otherwise it has moved, and the other thread continues its handshake
                self._guarded(channel, type(channel).shake_hands)
        if self._successor is not None:
            self._move_channels(self._successor)
        self.calls_to_loop.hand_over()

    def _move_channels(self, successor: Processor) -> None:
        self.calls_to_loop.hand_over()  # before what the successor will add for these channels: principal, then request
        for channel in list(self._channels.values()):
            self.forget(channel)
            channel.move_to(successor)
        if self._on_moved is not None:
            self.calls_to_loop.add(self._on_moved)
            self._on_moved = None

    def _wait(self) -> list[tuple[int, int]]:
        self._is_asleep = True
        has_work = self._tasks or self._handshakes or self._is_stopping
        events = self._epoll.poll(0 if has_work else None, _EVENTS_PER_TURN)
        self._is_asleep = False
        return events

    def _guarded(self, channel: TlsChannel, task: Callable[..., None], *arguments: int) -> None:
        """Runs a task. A fault in our code ends one connection, not the thread."""
        try:
            task(channel, *arguments)
        except Exception:
            logger.exception("serving %r failed", channel)
            channel.fail("the broker failed to serve it; the log has the error")
