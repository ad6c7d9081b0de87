"""A hierarchical timing wheel: holds a million pending delays, and inserts or cancels each in constant time.

A wheel is a ring of ``wheel_size`` buckets, one per tick of ``tick_ms``. Together they span ``interval_ms = tick_ms ×
wheel_size`` from ``current_time_ms`` on, which is always a multiple of the tick. A task goes to the bucket of the tick
in which it is due. A task that is due after the interval goes to the overflow wheel, which is created when it is first
needed, and whose tick is the whole interval of this wheel. That wheel overflows into a third one, and so on. A bucket
(:class:`TimerTaskList`) is a circular doubly linked list whose root is the list itself, and a task has its own links.
So inserting and cancelling neither search nor allocate.

Nothing runs at each tick. A bucket that gets its first task enters the :class:`DelayQueue`, a heap ordered by
expiration (the start of the bucket's tick). The owner of the timer sleeps until the earliest expiration. A bucket is
queued at most once, so the heap has at most ``wheel_size`` entries per wheel, however many tasks are pending. When a
bucket expires, the wheels turn to that time and each of its tasks is added again: it is due now, or it moves down to a
finer wheel.

Worked example: ``tick_ms=1``, ``wheel_size=20``, ``current_time_ms=0``. The first wheel spans [0, 20) in ticks of 1,
the second [0, 400) in ticks of 20, the third [0, 8000) in ticks of 400.

- Due at 7: fits the first wheel, bucket 7 % 20 = 7, which is queued with expiration 7.
- Due at 453: not below 20, nor below 400; the third wheel takes it, tick 453 // 400 = 1, bucket 1, expiration 400.
- At 7 the first bucket is taken from the queue, the first wheel turns to 7, its task is due and runs.
- At 400 the other bucket is taken, the wheels turn to 400: the first spans [400, 420), the second [400, 800). The
  task has 53 ms left: not below 420, but the second wheel takes it, tick 453 // 20 = 22, bucket 2, expiration 440.
- At 440 it moves down again, to bucket 453 % 20 = 13 of the first wheel, expiration 453, and there it runs.

Two buckets of one wheel never share a slot: all queued buckets expire after ``current_time_ms`` and before
``current_time_ms + interval_ms``, provided that the wheel never turns past a queued bucket. A bucket that cancelling
has emptied stays queued until it comes to the front; it costs nothing before.

Kafka has a separate TimerTaskEntry, so that another thread can replace a task. Here one object is enough.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final


class Link:
    """A place in a circular doubly linked list."""

    __slots__ = ("next", "prev")

    next: "Link"
    prev: "Link"


# Both neighbours of a link that is in no list. None would need a test at every step. The link itself would make each
# task a reference cycle, which only the garbage collector can free.
DETACHED: Final = Link()


def _nothing() -> None:
    pass


class TimerTask(Link):
    """One pending action. The task is in exactly one list until it is removed to run, or is cancelled."""

    __slots__ = ("_pending", "action", "expiration_ms")

    def __init__(self, expiration_ms: int, action: Callable[[], None], pending: "PendingCount") -> None:
        self.expiration_ms = expiration_ms
        self.action = action
        self._pending = pending
        self.next = self.prev = DETACHED

    def cancel(self) -> None:
        """Keeps the action from running. Does nothing if it has run, is running, or was cancelled."""
        next_link = self.next
        if next_link is DETACHED:
            return
        prev_link = self.prev
        prev_link.next = next_link
        next_link.prev = prev_link
        self.next = self.prev = DETACHED
        self.action = _nothing  # a handle that somebody keeps must not keep the objects of the action alive
        self._pending.count -= 1

    def take_action(self) -> Callable[[], None]:
        """Removes the task from its list; returns the action, to be run."""
        action = self.action
        self.cancel()
        return action


class PendingCount:
    """How many tasks are in the lists of a timer. All its tasks share the object, and a cancelled task decrements
    it."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class TimerTaskList(Link):
    """A bucket: the tasks of one tick, in the order in which they were added."""

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
        """Removes and returns the first task. It still counts as pending, because it moves to another list."""
        first = self.next
        if not isinstance(first, TimerTask):
            return None
        self.next = first.next
        first.next.prev = self
        first.next = first.prev = DETACHED
        return first


class DelayQueue:
    """The buckets that hold tasks, the earliest first. Calls ``on_new_head`` when a new bucket is the earliest."""

    __slots__ = ("_heap", "_on_new_head")

    def __init__(self, on_new_head: Callable[[], None]) -> None:
        # Two buckets with the same expiration have different ticks, so buckets themselves are never compared.
        self._heap: list[tuple[int, int, TimerTaskList]] = []
        self._on_new_head = on_new_head

    def offer(self, bucket: TimerTaskList, tick_ms: int) -> None:
        heap = self._heap
        heappush(heap, (bucket.expiration_ms, tick_ms, bucket))
        if heap[0][2] is bucket:
            self._on_new_head()

    def next_expiration_ms(self) -> int | None:
        """The expiration time of the earliest bucket that is not empty. Empty buckets before it are removed."""
        heap = self._heap
        while heap:
            expiration_ms, _, bucket = heap[0]
            if bucket:
                return expiration_ms
            heappop(heap)
            bucket.expiration_ms = TimerTaskList.NOT_QUEUED
        return None

    def poll(self, now_ms: int) -> tuple[int, TimerTaskList] | None:
        """Removes and returns the earliest bucket, with its expiration, if it has expired."""
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
        """Puts a task into the bucket of its tick. Returns False, and does nothing, if the task is due already."""
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
        """Turns this wheel and its overflow wheels to ``time_ms``. No queued bucket may expire before that time."""
        wheel: TimingWheel | None = self
        # If a wheel stays within its tick, all coarser wheels stay within theirs.
        while wheel is not None and time_ms >= wheel.current_time_ms + wheel.tick_ms:
            wheel.current_time_ms = time_ms - time_ms % wheel.tick_ms
            wheel.end_ms = wheel.current_time_ms + wheel.interval_ms
            wheel = wheel.overflow_wheel

    def _add_overflow_wheel(self) -> "TimingWheel":
        self.overflow_wheel = TimingWheel(self.interval_ms, self.wheel_size, self.current_time_ms, self._queue)
        return self.overflow_wheel
