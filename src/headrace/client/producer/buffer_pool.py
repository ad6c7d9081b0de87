"""Limits the memory of a producer: at most ``buffer.memory`` bytes wait to be sent.

The pool only counts bytes; it allocates nothing. A batch reserves its full size when it is opened and releases it when
it is done, so appending a record costs the pool nothing.

Callers that wait are served strictly in order. A small wait does not overtake a large wait at the front, because the
large one might starve. A wait is a plain object with a callback, so that a future, a thread's event or a test can use
it. A wait ends once: granted (the bytes belong to the waiter) or cancelled.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum, auto


class WaitState(Enum):
    WAITING = auto()
    GRANTED = auto()
    CANCELLED = auto()


class Wait:
    """A place in the queue for memory. ``on_end`` is called once, after ``state`` has changed."""

    __slots__ = ("on_end", "size_bytes", "state")

    def __init__(self, size_bytes: int, on_end: Callable[["Wait"], None]) -> None:
        self.size_bytes = size_bytes
        self.on_end = on_end
        self.state = WaitState.WAITING

    def _end(self, state: WaitState) -> None:
        self.state = state
        self.on_end(self)


class LargerThanPool(ValueError):
    """A caller asked for more bytes than the whole pool has, so waiting would not help."""


class BufferPool:
    """Counts the bytes that are free, and the callers that wait for bytes."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.available_bytes = total_bytes
        self._waits: deque[Wait] = deque()

    @property
    def waiting(self) -> int:
        """The number of waits. If it is not 0, the pool is exhausted and buffered records should be sent."""
        return len(self._waits)

    def try_reserve(self, size_bytes: int) -> bool:
        """Reserves the bytes now. Returns False if they are not free, or if others wait already.

        :raises LargerThanPool: if the pool is smaller than that.
        """
        self._check(size_bytes)
        if self._waits or size_bytes > self.available_bytes:
            return False
        self.available_bytes -= size_bytes
        return True

    def wait(self, size_bytes: int, on_end: Callable[[Wait], None]) -> Wait:
        """Queues for the bytes. If they are free and nobody waits, ``on_end`` is called before this method returns.

        :raises LargerThanPool: if the pool is smaller than that.
        """
        self._check(size_bytes)
        wait = Wait(size_bytes, on_end)
        self._waits.append(wait)
        self._serve()
        return wait

    def release(self, size_bytes: int) -> None:
        assert 0 <= size_bytes <= self.total_bytes - self.available_bytes, "more released than was reserved"
        self.available_bytes += size_bytes
        self._serve()

    def cancel(self, wait: Wait) -> None:
        """Removes a wait from the queue. A wait that was granted already keeps its bytes; the caller releases them."""
        if wait.state is WaitState.WAITING:
            self._waits.remove(wait)
            wait._end(WaitState.CANCELLED)
            self._serve()

    def _serve(self) -> None:
        while self._waits and self._waits[0].size_bytes <= self.available_bytes:
            wait = self._waits.popleft()
            self.available_bytes -= wait.size_bytes
            wait._end(WaitState.GRANTED)

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self.total_bytes:
            raise LargerThanPool(f"{size_bytes} bytes are needed, but buffer.memory is {self.total_bytes}")
