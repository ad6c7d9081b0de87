"""Holds operations that cannot be answered yet: they wait for an event, or for their timeout (Kafka's purgatory).

A Produce with acks=all waits for followers, a Fetch waits for min_bytes. Such a :class:`DelayedOperation` is watched
under the keys whose events may complete it (for example a partition), and has one task in the timer. Code that causes
an event calls :meth:`Purgatory.check_and_complete` with the key, and each operation that is watched there checks
whether it can be answered now. If both event and timeout come, the first one completes the operation, exactly once.

There is one dict of operations per key, in order of arrival, and each operation remembers its keys. So a completed
operation is removed from every dict and from the timer at once, in time proportional to the number of its keys. Kafka's
purgatory keeps completed operations in its lists until a reaper removes them; here is no reaper. A key without
operations has no dict. All of this runs on one loop, so there is no lock, and no second check after watching.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from logging import getLogger
from typing import Generic, TypeVar

from headrace.runtime.timer import Timer, TimerTask

logger = getLogger(__name__)

K = TypeVar("K", bound=Hashable)


class DelayedOperation:
    """An operation that completes exactly once. Subclasses define when (``try_complete``) and how (``on_complete``)."""

    is_completed: bool = False
    _timeout: TimerTask | None = None
    #: Removes the operation from its purgatory; None while it is in none.
    _remove_from_purgatory: "Callable[[DelayedOperation], None] | None" = None

    def try_complete(self) -> bool:
        """Checks whether the operation can be answered; if so, ``return self.force_complete()``."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Runs exactly once, after an event or the timeout. The operation is in no purgatory any more."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Runs after ``on_complete`` if the timeout completed the operation."""

    def force_complete(self) -> bool:
        """Completes the operation in any state. Returns True to the one caller that completed it."""
        if self.is_completed:
            return False
        self.is_completed = True
        self._withdraw()
        self.on_complete()
        return True

    def _withdraw(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        if self._remove_from_purgatory is not None:
            remove, self._remove_from_purgatory = self._remove_from_purgatory, None
            remove(self)

    def _expire(self) -> None:
        if self.force_complete():
            self.on_expiration()


class Purgatory(Generic[K]):
    def __init__(self, name: str, timer: Timer) -> None:
        self.name = name
        #: The number of entries under all keys: an operation with three keys counts three times.
        self.watched = 0
        #: The number of waiting operations.
        self.delayed = 0
        self._timer = timer
        self._watchers: dict[K, dict[int, DelayedOperation]] = {}

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[K], timeout_ms: int) -> bool:
        """Completes an operation at once and returns True; or watches it under its keys, until its timeout at most."""
        assert keys, "an operation without keys could only time out"
        assert operation._remove_from_purgatory is None, "the operation is in a purgatory already"
        if operation.is_completed or operation.try_complete():
            return True
        unique_keys = tuple(dict.fromkeys(keys))
        for key in unique_keys:
            self._watchers.setdefault(key, {})[id(operation)] = operation
        self.watched += len(unique_keys)
        self.delayed += 1
        operation._remove_from_purgatory = partial(self._remove, unique_keys)
        operation._timeout = self._timer.schedule(timeout_ms, operation._expire)
        return False

    def check_and_complete(self, key: K) -> int:
        """Checks the operations under a key after an event; returns how many of them completed.

        The exception of an operation is logged, because the caller is not to blame for it. The operation still has its
        timeout.
        """
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed_count = 0
        for operation in list(watchers.values()):
            # An earlier operation of this loop may have completed or removed this one.
            if operation._remove_from_purgatory is None:
                continue
            try:
                completed_count += operation.try_complete()
            except Exception:
                logger.exception("purgatory %s: operation %r failed after an event of %r", self.name, operation, key)
        return completed_count

    def _remove(self, keys: tuple[K, ...], operation: DelayedOperation) -> None:
        for key in keys:
            watchers = self._watchers[key]
            del watchers[id(operation)]
            if not watchers:
                del self._watchers[key]
        self.watched -= len(keys)
        self.delayed -= 1
