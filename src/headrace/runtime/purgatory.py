"""Purgatory: operations that cannot be answered yet, and wait for an event or for their time to run out.

An acks=all produce waits for its followers, a fetch for min_bytes. Such a :class:`DelayedOperation` is watched under
the keys whose events may complete it (a partition, say) and has one task in the timer. Whoever causes an event calls
:meth:`Purgatory.check_and_complete` with its key, and each operation watched there looks again whether it can be
answered. Event and timeout may both come; the operation completes exactly once, by whichever is first.

Watchers are a dict a key, by identity, in order of arrival; each operation remembers its keys. So completing takes it
out of every dict and of the timer at once, in time proportional to its own keys, and nothing is left for a sweep:
Kafka's purgatory keeps completed operations in its lists until a reaper purges them. A key without operations has no
dict. All this runs on one loop, so there is no lock, and no second look after watching.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from logging import getLogger
from typing import Generic, TypeVar

from headrace.runtime.timer import Timer, TimerTask

logger = getLogger(__name__)

K = TypeVar("K", bound=Hashable)


class DelayedOperation:
    """Completes exactly once. Subclasses say when (``try_complete``) and what then (``on_complete``)."""

    is_completed: bool = False
    _timeout: TimerTask | None = None
    #: Takes it out of the watcher lists; None while it waits nowhere.
    _leave: "Callable[[DelayedOperation], None] | None" = None

    def try_complete(self) -> bool:
        """Look at the state; when it can be answered, ``return self.force_complete()``."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Runs exactly once, whatever completed it. It waits nowhere any more when this runs."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Runs after ``on_complete`` when it was the timeout that completed it."""

    def force_complete(self) -> bool:
        """Complete it, whatever the state. True for the one caller that did."""
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
        if self._leave is not None:
            leave, self._leave = self._leave, None
            leave(self)

    def _expire(self) -> None:
        if self.force_complete():
            self.on_expiration()


class Purgatory(Generic[K]):
    def __init__(self, name: str, timer: Timer) -> None:
        self.name = name
        #: How many entries the watcher lists have: an operation with three keys counts three times.
        self.watched = 0
        #: How many operations wait.
        self.delayed = 0
        self._timer = timer
        self._watchers: dict[K, dict[int, DelayedOperation]] = {}

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[K], timeout_ms: int) -> bool:
        """True when it completed at once; else it now waits at ``keys``, for ``timeout_ms`` at most."""
        assert keys, "an operation without keys could only time out"
        assert operation._leave is None, "this operation waits already"
        if operation.is_completed or operation.try_complete():
            return True
        unique_keys = tuple(dict.fromkeys(keys))
        for key in unique_keys:
            self._watchers.setdefault(key, {})[id(operation)] = operation
        self.watched += len(unique_keys)
        self.delayed += 1
        operation._leave = partial(self._forget, unique_keys)
        operation._timeout = self._timer.schedule(timeout_ms, operation._expire)
        return False

    def check_and_complete(self, key: K) -> int:
        """Something happened at ``key``: how many operations that completed.

        An operation that fails is logged and passed over; the event's causer has no part in it. It still has its
        timeout.
        """
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed_count = 0
        for operation in list(watchers.values()):
            # One that completed or left since the list was taken is none of ours.
            if operation._leave is None:
                continue
            try:
                completed_count += operation.try_complete()
            except Exception:
                logger.exception("%s: %r failed at %r", self.name, operation, key)
        return completed_count

    def cancel_for_key(self, key: K) -> list[DelayedOperation]:
        """Take out, from all their keys, the operations watched at ``key``. They are the caller's to complete."""
        operations = list(self._watchers.get(key, {}).values())
        for operation in operations:
            operation._withdraw()
        return operations

    def _forget(self, keys: tuple[K, ...], operation: DelayedOperation) -> None:
        for key in keys:
            watchers = self._watchers[key]
            del watchers[id(operation)]
            if not watchers:
                del self._watchers[key]
        self.watched -= len(keys)
        self.delayed -= 1
