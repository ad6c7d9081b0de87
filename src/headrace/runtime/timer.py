"""Runs actions after a delay, on a timing wheel (``wheel.py`` explains it).

The timer has no thread and no loop. The owner of the loop sets one loop timer for :meth:`Timer.next_due_ms`, calls
:meth:`Timer.advance` when it fires, and sets it again. The timer calls ``on_earlier`` when a new task is due before all
others, so that the owner sets its loop timer to an earlier time. While no task is pending, no loop timer is set.

Delays count from the clock's current millisecond, and are rounded up to whole ticks. So no task runs too early, and
each runs in the first ``advance`` at or after its tick, in the order of ticks. The order within one tick is undefined.
"""

from collections.abc import Callable
from logging import getLogger

from headrace.runtime.clock import Clock
from headrace.runtime.wheel import DelayQueue, PendingCount, TimerTask, TimerTaskList, TimingWheel

__all__ = ["Timer", "TimerTask"]

logger = getLogger(__name__)


def _ignore() -> None:
    pass


class Timer:
    def __init__(
        self, clock: Clock, *, tick_ms: int = 1, wheel_size: int = 20, on_earlier: Callable[[], None] | None = None
    ) -> None:
        if tick_ms < 1 or wheel_size < 2:
            raise ValueError(
                f"a timing wheel needs at least 2 buckets of at least 1 ms, not {wheel_size} buckets of {tick_ms} ms"
            )
        self._clock = clock
        self._tick_ms = tick_ms
        self._on_earlier = on_earlier or _ignore
        self._queue = DelayQueue(self._head_changed)
        self._wheel = TimingWheel(tick_ms, wheel_size, clock.monotonic_ms(), self._queue)
        #: The tasks that are due and have not run yet.
        self._ready = TimerTaskList()
        self._pending = PendingCount()
        self._is_moving_tasks = False

    def __len__(self) -> int:
        return self._pending.count

    def schedule(self, delay_ms: int, action: Callable[[], None]) -> TimerTask:
        """Runs an action after a delay; without a delay, or with a negative one, in the next ``advance``."""
        now_ms = self._clock.monotonic_ms()
        wheel = self._wheel
        tick_ms = self._tick_ms
        if now_ms >= wheel.current_time_ms + tick_ms:
            self._catch_up(now_ms)
        pending = self._pending
        pending.count += 1
        if delay_ms <= 0:
            task = TimerTask(now_ms, action, pending)
            self._make_ready(task)
            return task
        task = TimerTask(-(-(now_ms + delay_ms) // tick_ms) * tick_ms, action, pending)
        if not wheel.add(task):
            self._make_ready(task)
        return task

    def next_due_ms(self) -> int | None:
        """The monotonic time of the next call of ``advance``; None if no task is pending."""
        first_ready = self._ready.first()
        if first_ready is not None:
            return first_ready.expiration_ms
        return self._queue.next_expiration_ms()

    def advance(self) -> int:
        """Runs all actions that are due; returns how many. What they schedule waits for the next call."""
        self._move_due_tasks(self._clock.monotonic_ms())
        running, self._ready = self._ready, TimerTaskList()
        ran_count = 0
        try:
            # One task after the other is taken from the list, so that an action can still cancel later ones.
            while (task := running.first()) is not None:
                ran_count += 1
                self._run(task.take_action())
        finally:
            # After a BaseException, the tasks that did not run are still due.
            while (task := running.pop_first()) is not None:
                self._ready.add(task)
        return ran_count

    def _move_due_tasks(self, now_ms: int) -> None:
        self._is_moving_tasks = True
        wheel, ready = self._wheel, self._ready
        while (expired := self._queue.poll(now_ms)) is not None:
            expiration_ms, bucket = expired
            wheel.advance_clock(expiration_ms)
            while (task := bucket.pop_first()) is not None:
                if not wheel.add(task):
                    ready.add(task)
        wheel.advance_clock(now_ms)
        self._is_moving_tasks = False

    def _catch_up(self, now_ms: int) -> None:
        """Turns the wheel to the current time, unless a bucket is due before.

        Without this, a short delay after a long idle time would go into a coarse wheel, and move down through all.
        """
        next_expiration_ms = self._queue.next_expiration_ms()
        if next_expiration_ms is None or next_expiration_ms > now_ms:
            self._wheel.advance_clock(now_ms)

    def _make_ready(self, task: TimerTask) -> None:
        is_first = not self._ready
        self._ready.add(task)
        if is_first:
            self._on_earlier()

    def _head_changed(self) -> None:
        # While tasks move down the wheels, on_earlier is not needed: the owner asks again after each advance.
        if not self._is_moving_tasks:
            self._on_earlier()

    @staticmethod
    def _run(action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            logger.exception("the action %r of a timer failed", action)
