"""The memory of a producer: at most ``buffer.memory`` bytes wait to be sent, and who wants more waits its turn.

Nothing is allocated here; bytes are counted. A batch reserves its whole room when it is opened and gives it back when
it is done with, so that appending a record costs the pool nothing.

Waiters are served strictly in order: a large one at the front is not overtaken by small ones behind it, or it might
starve. A wait is a plain object with a callback, so that it may sit under a future, a thread's condition or a test.
It ends once: granted (the bytes are the waiter's), expired (``max.block.ms`` is over), or cancelled.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum, auto


class WaitState(Enum):
    WAITING = auto()
    GRANTED = auto()
    EXPIRED = auto()
    CANCELLED = auto()


class Wait:
    """A place in the queue for memory. ``on_end`` is called once, after ``state`` has changed."""

    __slots__ = ("deadline_ms", "on_end", "size_bytes", "state")

    def __init__(self, size_bytes: int, deadline_ms: int, on_end: Callable[["Wait"], None]) -> None:
        self.size_bytes = size_bytes
        self.deadline_ms = deadline_ms
        self.on_end = on_end
        self.state = WaitState.WAITING

    def _end(self, state: WaitState) -> None:
        self.state = state
        self.on_end(self)


class LargerThanPool(ValueError):
    """More was asked for than the pool will ever have: waiting would not help."""


class BufferPool:
    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.available_bytes = total_bytes
        self._waits: deque[Wait] = deque()

    @property
    def waiting(self) -> int:
        """How many wait: any at all means that the pool is exhausted, and what is buffered should go out."""
        return len(self._waits)

    def try_reserve(self, size_bytes: int) -> bool:
        """Take the bytes now, unless they are not there or others were first.

        :raises LargerThanPool: if they never can be there.
        """
        self._check(size_bytes)
        if self._waits or size_bytes > self.available_bytes:
            return False
        self.available_bytes -= size_bytes
        return True

    def wait(self, size_bytes: int, deadline_ms: int, on_end: Callable[[Wait], None]) -> Wait:
        """Queue for the bytes. If they are there and nobody is before, ``on_end`` is called before this returns.

        :raises LargerThanPool: as :meth:`try_reserve`.
        """
        self._check(size_bytes)
        wait = Wait(size_bytes, deadline_ms, on_end)
        self._waits.append(wait)
        self._serve()
        return wait

    def release(self, size_bytes: int) -> None:
        assert 0 <= size_bytes <= self.total_bytes - self.available_bytes, "more released than was reserved"
        self.available_bytes += size_bytes
        self._serve()

    def cancel(self, wait: Wait) -> None:
        """Leave the queue. Who was granted the bytes in the meantime still has them, and releases them."""
        if wait.state is WaitState.WAITING:
            self._waits.remove(wait)
            wait._end(WaitState.CANCELLED)
            self._serve()

    def expire(self, now_ms: int) -> None:
        """End the waits whose deadline is reached."""
        late = [wait for wait in self._waits if wait.deadline_ms <= now_ms]
        if not late:
            return
        self._waits = deque(wait for wait in self._waits if wait.deadline_ms > now_ms)
        for wait in late:
            wait._end(WaitState.EXPIRED)
        self._serve()

    def next_deadline_ms(self) -> int | None:
        return min((wait.deadline_ms for wait in self._waits), default=None)

    def _serve(self) -> None:
        while self._waits and self._waits[0].size_bytes <= self.available_bytes:
            wait = self._waits.popleft()
            self.available_bytes -= wait.size_bytes
            wait._end(WaitState.GRANTED)

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self.total_bytes:
            raise LargerThanPool(f"{size_bytes} bytes asked for, buffer.memory is {self.total_bytes}")
