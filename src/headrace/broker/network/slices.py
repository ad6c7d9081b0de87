"""Shares the event loop between requests with many elements and all other requests.

A request may name a million topics, and the loop has one thread. So a handler loops over the elements of a request in
slices: after ``SLICE_MS`` the handler waits for its next turn, and the loop serves other requests first. All requests
that wait for a turn share one queue, and one of them gets one slice in each iteration of the loop. However many large
requests there are, another client waits for a few slices at most. Copying bytes takes the loop's time, too: a handler
that stores the bytes of its elements ends its slice after ``SLICE_BYTES``.

A short request may ask for much, too: a partition has as many producers as clients have written to it. Lists that are
made from the broker's state are made in slices, however few elements the request has.

Memory is bounded in the same way. The elements of a large request are read one at a time (``large_messages.py``), and
the answers to them are encoded as they are made: a million dicts would take hundreds of megabytes, and the garbage
collector and the allocator would each stop the loop for longer than a slice. ``answer_memory.py`` limits the bytes.

Time comes from the broker's clock. In a simulation that clock stands still while code runs, so a simulated broker never
pauses by chance, and a seed gives the same run each time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Self, TypeVar

from headrace.broker.network.answer_memory import AnswerMemory
from headrace.protocol.wire.encoder import Encode, Message
from headrace.runtime.clock import Clock

T = TypeVar("T")

SLICE_MS = 5
#: The bytes that a slice checks and writes. 1 MiB takes one or two milliseconds.
SLICE_BYTES = 1024 * 1024
#: A loop over so few elements does not check the clock.
FEW_ELEMENTS = 32
#: Encoded answers are kept in pieces of about this size.
_PIECE_BYTES = 32 * 1024


class Answers:
    """The answers to the elements of an array, in the order in which they were added.

    The answers of a large request are encoded when they are added, except for those that may still change. The encoder
    of the response reads the length and the items of this object, and copies items that are bytes already.
    """

    __slots__ = ("_count", "_count_bytes", "_counted_bytes", "_encode", "_items", "_out", "may_change")

    def __init__(self, encode: Encode | None, count_bytes: Callable[[int], None] | None = None) -> None:
        """
        :param encode: None: no answer is encoded here.
        :param count_bytes: is called with the size of each piece of encoded answers, and when the encoder of the
            response copies the pieces, with their negative sum. It may raise an error.
        """
        self._encode = encode
        self._items: list[Message | bytes] = []
        self._out = bytearray()
        self._count = 0
        self._count_bytes = count_bytes
        self._counted_bytes = 0
        #: Whether an answer was added that may still change.
        self.may_change = False

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        self._end_piece()
        if self._count_bytes is not None and self._counted_bytes:
            self._count_bytes(-self._counted_bytes)
            self._counted_bytes = 0
        return iter(self._items)

    def add(self, answer: Message | bytes | None, *, may_change: bool = False) -> None:
        """Adds an answer; None adds nothing.

        :param may_change: True if the handler may still change the answer. It is then encoded with the response.
        """
        if answer is None:
            return
        self._count += 1
        if self._encode is None:
            self._items.append(answer)
        elif may_change:
            self._end_piece()
            self._items.append(answer)
            self.may_change = True
        else:
            out = self._out
            if isinstance(answer, bytes):
                out += answer
            else:
                self._encode(out, answer, [])
            if len(out) >= _PIECE_BYTES:
                self._end_piece()
                if self._count_bytes is not None:
                    self._counted_bytes += len(out)
                    self._count_bytes(len(out))

    def _end_piece(self) -> None:
        if self._out:
            self._items.append(bytes(self._out))
            self._out = bytearray()


class Repeated(set[Hashable]):
    """The keys that a request names more than once, and that are answered only once."""

    def __init__(self) -> None:
        super().__init__()
        self._met: set[Hashable] = set()

    def was_met_before(self, key: Hashable) -> bool:
        """Returns whether this method was called with the key before; False for a key that the request names once."""
        if key not in self:
            return False
        if key in self._met:
            return True
        self._met.add(key)
        return False


class Slices:
    """Gives turns to the handlers of large requests."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._now_ms = clock.monotonic_ms
        self.answer_memory = AnswerMemory(clock.monotonic_ms)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def turn(self) -> int:
        """Waits for the next slice, and returns the time at which the slice ends."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waiting)
        self._schedule()
        await waiting
        return self._now_ms() + SLICE_MS

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._give)

    def _give(self) -> None:
        self._is_scheduled = False
        waiting = self._waiting.popleft()
        if not waiting.done():  # it is done if the broker stops
            waiting.set_result(None)
        self._schedule()

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Runs a generator to its end, and returns its value."""
        ends_ms = await self.turn()
        while True:
            try:
                next(steps)
            except StopIteration as done:
                value: T = done.value
                return value
            if self._now_ms() >= ends_ms:
                ends_ms = await self.turn()

    def over(self, items: Iterable[T], size_bytes_of: Callable[[T], int] | None = None) -> AsyncIterator[T]:
        """Yields the items one by one, and pauses when a slice has ended.

        :param size_bytes_of: how many bytes the caller will store for an item.
        """
        return _PausingIterator(self, iter(items), size_bytes_of)

    async def fill(self, answers: Answers, items: Iterable[T], answer: Callable[[T], Any]) -> Answers:
        """Adds the answers to the items, in order. If the answer to an item is None, the item is left out."""
        async for item in self.over(items):
            answers.add(answer(item))
        return answers

    async def fill_awaited(
        self, answers: Answers, items: Iterable[T], answer: Callable[[T], Awaitable[Any]]
    ) -> Answers:
        """The same with a function that may wait."""
        async for item in self.over(items):
            answers.add(await answer(item))
        return answers

    async def free(self, items: set[Any]) -> None:
        """Empties a set. To free a million objects at once would take several slices."""
        if len(items) > FEW_ELEMENTS:
            async for _ in self.over(_emptied(items)):
                pass

    async def repeated(self, items: Sequence[T], key: Callable[[T], Hashable]) -> Repeated:
        """Returns the keys that more than one item has."""
        repeated = Repeated()
        if len(items) <= FEW_ELEMENTS:
            keys = [key(item) for item in items]
            if len(set(keys)) < len(keys):
                repeated.update(one for one in keys if keys.count(one) > 1)
            return repeated
        seen: set[Hashable] = set()
        async for item in self.over(items):
            found = key(item)
            (repeated if found in seen else seen).add(found)
        await self.free(seen)
        return repeated


class _PausingIterator(AsyncIterator[T]):
    """An iterator that pauses. It is not an async generator, because the loop has to keep track of those."""

    __slots__ = ("_ends_ms", "_items", "_now_ms", "_size_bytes_of", "_slices", "_stored_bytes")

    def __init__(self, slices: Slices, items: Iterator[T], size_bytes_of: Callable[[T], int] | None) -> None:
        self._slices = slices
        self._items = items
        self._size_bytes_of = size_bytes_of
        self._stored_bytes = 0
        self._now_ms = slices._now_ms
        self._ends_ms = self._now_ms() + SLICE_MS

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        for item in self._items:
            size_bytes = 0 if self._size_bytes_of is None else self._size_bytes_of(item)
            is_full = bool(self._stored_bytes) and self._stored_bytes + size_bytes > SLICE_BYTES
            if is_full or self._now_ms() >= self._ends_ms:
                self._ends_ms = await self._slices.turn()
                self._stored_bytes = 0
            self._stored_bytes += size_bytes
            return item
        raise StopAsyncIteration


def _emptied(items: set[T]) -> Iterator[T]:
    """Yields the items while it removes them."""
    while items:
        yield items.pop()


def in_groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields the items in lists of at most ``size``."""
    left = iter(items)
    while group := list(islice(left, size)):
        yield group
