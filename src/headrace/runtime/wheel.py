"""A hierarchical timing wheel: a million pending delays, each inserted and cancelled in constant time.

A wheel is a ring of ``wheel_size`` buckets, one a tick of ``tick_ms``; together they span ``interval_ms = tick_ms ×
wheel_size`` from ``current_time_ms`` on, which is always a multiple of the tick. A task goes to the bucket of the tick
in which it is due. What is due later than the interval goes to the overflow wheel, made when first needed, whose tick
is this wheel's whole interval; that one overflows into a third, and so on. A bucket (:class:`TimerTaskList`) is a
circular doubly linked list whose root is the list itself, and a task carries its own links, so that neither inserting
nor cancelling searches or allocates.

Nothing ticks. A bucket that gets its first task enters the :class:`DelayQueue`, a heap by expiration (the start of the
bucket's tick), and whoever drives the timer sleeps until the earliest. A bucket is queued at most once, so that the
heap holds at most ``wheel_size`` entries a wheel, however many tasks are pending. When a bucket expires, the wheels
turn to that moment and each task of it is added again: it is due now, or it moves down to a finer wheel.

Worked example: ``tick_ms=1``, ``wheel_size=20``, ``current_time_ms=0``. The first wheel spans [0, 20) in ticks of 1,
the second [0, 400) in ticks of 20, the third [0, 8000) in ticks of 400.

- Due at 7: fits the first wheel, bucket 7 % 20 = 7, which is queued with expiration 7.
- Due at 453: not below 20, nor below 400; the third wheel takes it, tick 453 // 400 = 1, bucket 1, expiration 400.
- At 7 the first bucket is taken from the queue, the first wheel turns to 7, its task is due and runs.
- At 400 the other bucket is taken, the wheels turn to 400: the first spans [400, 420), the second [400, 800). The
  task has 53 ms left: not below 420, but the second wheel takes it, tick 453 // 20 = 22, bucket 2, expiration 440.
- At 440 it moves down again, to bucket 453 % 20 = 13 of the first wheel, expiration 453, and there it runs.

Two buckets of one wheel never share a slot: all that is queued expires after ``current_time_ms`` and before
``current_time_ms + interval_ms``, provided that the wheel never turns past a queued bucket. A bucket emptied by
cancelling stays queued until it comes to the front; it costs nothing before.

Dropped: Kafka's separate TimerTaskEntry. It lets a task be replaced from another thread; here one object is enough.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final


class Link:
    """A place in a circular doubly linked list."""

    __slots__ = ("next", "prev")

    next: "Link"
    prev: "Link"


# Both neighbours of a link that is in no list. Not None, which would be tested for at every step; not the link
# itself, which would make each task a reference cycle that only the garbage collector can free.
DETACHED: Final = Link()


def _nothing() -> None:
    pass


class TimerTask(Link):
    """One pending action. It is in exactly one list until it is taken out to run, or is cancelled."""

    __slots__ = ("_pending", "action", "expiration_ms")

    def __init__(self, expiration_ms: int, action: Callable[[], None], pending: "PendingCount") -> None:
        self.expiration_ms = expiration_ms
        self.action = action
        self._pending = pending
        self.next = self.prev = DETACHED

    @property
    def is_pending(self) -> bool:
        return self.next is not DETACHED

    def cancel(self) -> None:
        """The action will not run. Without effect when it has run, is running, or was cancelled."""
        next_link = self.next
        if next_link is DETACHED:
            return
        prev_link = self.prev
        prev_link.next = next_link
        next_link.prev = prev_link
        self.next = self.prev = DETACHED
        self.action = _nothing  # whoever keeps this handle does not keep what the action refers to
        self._pending.count -= 1

    def take_action(self) -> Callable[[], None]:
        """Out of its list, to run: the action."""
        action = self.action
        self.cancel()
        return action


class PendingCount:
    """How many tasks are in any list of a timer. Shared by its tasks, which count themselves out."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class TimerTaskList(Link):
    """A bucket: the tasks of one tick, in the order in which they came."""

    __slots__ = ("expiration_ms",)

    #: ``expiration_ms`` of a bucket that is not in the delay queue.
    NOT_QUEUED: Final = -1

    def __init__(self) -> None:
        self.expiration_ms = self.NOT_QUEUED
        self.next = self.prev = self

    def __bool__(self) -> bool:
        return self.next is not self

    def add(self, task: TimerTask) -> None:
        last = self.prev
        task.prev = last
        task.next = self
        last.next = task
        self.prev = task

    def first(self) -> TimerTask | None:
        first = self.next
        return first if isinstance(first, TimerTask) else None

    def pop_first(self) -> TimerTask | None:
        """The first task, out of the list but still counted as pending: it is on its way to another list."""
        first = self.next
        if not isinstance(first, TimerTask):
            return None
        self.next = first.next
        first.next.prev = self
        first.next = first.prev = DETACHED
        return first


class DelayQueue:
    """The buckets that hold tasks, earliest first. Calls ``on_new_head`` when the earliest gets earlier."""

    __slots__ = ("_heap", "_on_new_head")

    def __init__(self, on_new_head: Callable[[], None]) -> None:
        # The tick tells two buckets of one expiration apart, so that buckets themselves are never compared.
        self._heap: list[tuple[int, int, TimerTaskList]] = []
        self._on_new_head = on_new_head

    def offer(self, bucket: TimerTaskList, tick_ms: int) -> None:
        heap = self._heap
        heappush(heap, (bucket.expiration_ms, tick_ms, bucket))
        if heap[0][2] is bucket:
            self._on_new_head()

    def next_expiration_ms(self) -> int | None:
        """When the earliest bucket that is not empty expires. Empty ones before it leave the queue."""
        heap = self._heap
        while heap:
            expiration_ms, _, bucket = heap[0]
            if bucket:
                return expiration_ms
            heappop(heap)
            bucket.expiration_ms = TimerTaskList.NOT_QUEUED
        return None

    def poll(self, now_ms: int) -> tuple[int, TimerTaskList] | None:
        """The earliest bucket, with its expiration, if it has expired. It leaves the queue."""
        expiration_ms = self.next_expiration_ms()
        if expiration_ms is None or expiration_ms > now_ms:
            return None
        _, _, bucket = heappop(self._heap)
        bucket.expiration_ms = TimerTaskList.NOT_QUEUED
        return expiration_ms, bucket


class TimingWheel:
    __slots__ = (
        "_queue",
        "buckets",
        "current_time_ms",
        "end_ms",
        "interval_ms",
        "overflow_wheel",
        "tick_ms",
        "wheel_size",
    )

    def __init__(self, tick_ms: int, wheel_size: int, start_ms: int, queue: DelayQueue) -> None:
        self.tick_ms = tick_ms
        self.wheel_size = wheel_size
        self.interval_ms = tick_ms * wheel_size
        self.current_time_ms = start_ms - start_ms % tick_ms
        self.end_ms = self.current_time_ms + self.interval_ms
        self.buckets = [TimerTaskList() for _ in range(wheel_size)]
        self.overflow_wheel: TimingWheel | None = None
        self._queue = queue

    def add(self, task: TimerTask) -> bool:
        """Put the task into the bucket of its tick. False, and nothing done, when it is due already."""
        expiration_ms = task.expiration_ms
        if expiration_ms < self.current_time_ms + self.tick_ms:
            return False
        wheel = self
        while expiration_ms >= wheel.end_ms:
            wheel = wheel.overflow_wheel or wheel._add_overflow_wheel()
        tick_number = expiration_ms // wheel.tick_ms
        bucket = wheel.buckets[tick_number % wheel.wheel_size]
        bucket.add(task)
        if bucket.expiration_ms == TimerTaskList.NOT_QUEUED:
            bucket.expiration_ms = tick_number * wheel.tick_ms
            self._queue.offer(bucket, wheel.tick_ms)
        return True

    def advance_clock(self, time_ms: int) -> None:
        """Turn to ``time_ms``, and the overflow wheels with it. No queued bucket may expire before that."""
        wheel: TimingWheel | None = self
        # A wheel that stays within its tick leaves all coarser ones within theirs.
        while wheel is not None and time_ms >= wheel.current_time_ms + wheel.tick_ms:
            wheel.current_time_ms = time_ms - time_ms % wheel.tick_ms
            wheel.end_ms = wheel.current_time_ms + wheel.interval_ms
            wheel = wheel.overflow_wheel

    def _add_overflow_wheel(self) -> "TimingWheel":
        self.overflow_wheel = TimingWheel(self.interval_ms, self.wheel_size, self.current_time_ms, self._queue)
        return self.overflow_wheel
