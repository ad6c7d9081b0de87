"""Makes the records of ``headrace producer-perf-test``: values, and encoded batches of them.

``random``     random letters of one size, as in Kafka's tool. Some thousand values are made at the start and used in
               turn, because making a value per record would take most of the measured time.
``file``       lines of a file (or parts between delimiters), each drawn at random
``monotonic``  the numbers 0, 1, 2, ... as text

``client.producer.record_encoding`` encodes one batch at a time. If all values have one size, a batch differs from the
one before only in its values, so only the values are replaced.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple

from headrace.client.producer.record_encoding import bound_bytes, encode_records
from headrace.protocol.records import HEADER_BYTES

_EMPTY_HEADER = bytes(HEADER_BYTES)
_MOST_VALUES = 8192
_MOST_BYTES = 16 << 20
_LETTERS = bytes(ord("A") + number % 26 for number in range(256))

_SHORTEST_UNIFORM_BYTES = 8


class Source(NamedTuple):
    #: Returns as many values as asked for.
    take: Callable[[int], Sequence[bytes]]
    #: The size of every value, if all have the same size.
    size_bytes: int | None = None


class PayloadBatch(NamedTuple):
    """Space for a header, followed by the records."""

    body: bytes
    record_count: int
    #: The bytes of the values only.
    payload_bytes: int


def random_source(size_bytes: int) -> Source:
    if size_bytes == 0:
        return Source(lambda wanted: [b""] * wanted, 0)
    count = max(1, min(_MOST_VALUES, _MOST_BYTES // size_bytes))
    letters = os.urandom(count * size_bytes).translate(_LETTERS)
    values = [letters[at : at + size_bytes] for at in range(0, count * size_bytes, size_bytes)]
    taken = 0

    def take(wanted: int) -> Sequence[bytes]:
        nonlocal taken
        start, taken = taken % len(values), taken + wanted
        if start + wanted <= len(values):
            return values[start : start + wanted]
        repeats = 1 + (start + wanted) // len(values)
        return (values * repeats)[start : start + wanted]

    return Source(take, size_bytes)


def file_source(payloads: Sequence[bytes], random: Random | None = None) -> Source:
    draw = random or Random()
    return Source(lambda wanted: draw.choices(payloads, k=wanted))


def monotonic_source() -> Source:
    sent = 0

    def take(wanted: int) -> Sequence[bytes]:
        nonlocal sent
        sent += wanted
        return [b"%d" % number for number in range(sent - wanted, sent)]

    return Source(take)


class BatchMaker:
    """Makes batches of at most ``batch.size`` bytes, or of one record if the record is larger."""

    def __init__(self, source: Source, batch_size_bytes: int) -> None:
        self._source = source
        self._limit_bytes = max(0, batch_size_bytes - HEADER_BYTES)
        self._left: Sequence[bytes] = ()
        #: How many records a batch probably holds.
        self._guess = 1 if source.size_bytes is None else self._count_for(source.size_bytes)
        self._is_uniform = source.size_bytes is not None and source.size_bytes >= _SHORTEST_UNIFORM_BYTES
        self._pieces: list[bytes] = []

    def make(self, most: int, timestamp_ms: int) -> PayloadBatch:
        """Makes the next batch, of at most this many records."""
        if self._is_uniform:
            return self._make_uniform(min(most, self._guess), timestamp_ms)
        values = self._left or self._source.take(min(most, self._guess))
        count = min(most, len(values), self._fitting(values))
        values, self._left = values[:count], values[count:]
        payload_bytes = sum(map(len, values))
        if not self._left:
            self._guess = self._count_for(payload_bytes // count)
        body = _EMPTY_HEADER + encode_records(values, None, {}, [(0, timestamp_ms)])
        return PayloadBatch(body, count, payload_bytes)

    def _make_uniform(self, count: int, timestamp_ms: int) -> PayloadBatch:
        assert self._source.size_bytes is not None
        values = self._source.take(count)
        if len(self._pieces) != 2 * count + 1:
            # In this template all records have the same value. The bytes between its copies separate the records of
            # every batch.
            encoded = encode_records([values[0]] * count, None, {}, [(0, timestamp_ms)])
            self._pieces = [b""] * (2 * count + 1)
            self._pieces[::2] = encoded.split(values[0])
            self._pieces[0] = _EMPTY_HEADER + self._pieces[0]
        self._pieces[1::2] = values
        return PayloadBatch(b"".join(self._pieces), count, count * self._source.size_bytes)

    def _fitting(self, values: Sequence[bytes]) -> int:
        sizes = accumulate(bound_bytes(len(value)) for value in values)
        return max(1, bisect_right(list(sizes), self._limit_bytes))

    def _count_for(self, value_bytes: int) -> int:
        return max(1, self._limit_bytes // bound_bytes(value_bytes))
