"""Reads messages that have too many elements to be read at once.

kio reads a whole message in one call, and nothing else runs meanwhile. A valid request may name a million partitions.
If it were read like any other request, it would block all other clients for seconds, and its elements would take
hundreds of megabytes. Such a message is *opened* instead. :func:`open_message` walks over all bytes of the message,
element by element, and yields to the caller after every few hundred elements. The walk reads each element with kio and
drops the result, so that a message that is invalid anywhere is rejected before a handler gets it. The opened message is
kio's own dataclass, with an :class:`ElementArray` in place of each tuple. The array reads its elements again, one at a
time, when a handler iterates over it.

The number of elements of a message is limited. Arrays inside tagged fields, and inside an entity that is not an element
of an array, are read at once, and rejected if they are too long for that: no request of Kafka has long arrays there.

Tagged fields that the schema does not have are left out, as ``unknown_tags.py`` does for messages of ordinary size.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import fields
from functools import cache
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol.kio import Reader, UnknownTag, entity_reader
from headrace.protocol.wire.array_guard import (
    MAX_TAGS,
    Budget,
    CountTooLarge,
    Guard,
    ManyElements,
    budget,
    count_reader,
    entity_guard,
    field_guard,
)
from headrace.protocol.wire.schema_fields import FIXED_FORMATS, UUID_BYTES, FieldKind
from headrace.protocol.wire.unknown_tags import without_unknown_tags
from headrace.protocol.wire.varints import LARGEST_TAG, put_uvarint, read_uvarint

#: A message with more elements is opened, and so is an element of an array.
AT_ONCE = 1_000
MAX_ELEMENTS = 2_000_000
#: The walk yields to its caller after this many elements.
_STEP = 200

_INT16 = Struct(">h")
_ZERO_UUID = bytes(UUID_BYTES)

#: A walk that yields many times, and at its end returns a value and the position behind it.
Walk = Generator[None, None, tuple[Any, int]]


def open_message(schema: type, frame: memoryview, at: int, max_elements: int = MAX_ELEMENTS) -> Walk:
    """Opens the message at a position of a frame; returns the message, and where it ends. Its arrays refer to the
    frame.

    :raises CountTooLarge: if the message has too many elements or tagged fields, or a count is wrong.
    """
    return (yield from _Opening(frame, max_elements).entity(schema, at))


class ElementArray:
    """The elements of an array. Each iteration reads them from the frame again."""

    __slots__ = ("_at", "_count", "_frame", "_opened", "_read")

    def __init__(
        self, frame: memoryview, at: int, count: int, read: Reader, opened: dict[int, tuple[Any, int]]
    ) -> None:
        self._frame = frame
        self._at = at
        self._count = count
        self._read = read
        #: The elements that have too many elements themselves, by index, and where each of them ends.
        self._opened = opened

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        frame, read, opened, at = self._frame, self._read, self._opened, self._at
        if not opened:
            for _ in range(self._count):
                element, size_bytes = read(frame, at)
                at += size_bytes
                yield element
            return
        for index in range(self._count):
            if index in opened:
                element, at = opened[index]
            else:
                element, size_bytes = read(frame, at)
                at += size_bytes
            yield element


class _Elements(NamedTuple):
    """Skips and reads an element of an array. Elements without a guard are never too large to be read at once."""

    guard: Guard | None
    read: Reader
    schema: type | None


class _Opening:
    """One walk over the bytes of a message."""

    def __init__(self, frame: memoryview, max_elements: int) -> None:
        self._frame = frame
        self._max_elements = max_elements
        self._left: Budget = budget(max_elements)

    def entity(self, schema: type, at: int) -> Walk:
        """Copies all fields except the arrays, lets kio read the copy, and puts the arrays into the result."""
        frame, is_flexible = self._frame, bool(schema.__flexible__)  # type: ignore[attr-defined]
        copy, arrays = bytearray(), dict[str, ElementArray]()
        for field in fields(schema):
            kind = FieldKind(field)
            if kind.tag is not None:
                continue
            if kind.is_array:
                count, at = count_reader(schema)(frame, at)
                _put_empty(copy, is_flexible, is_null=count < 0)
                if count >= 0:
                    arrays[field.name], at = yield from self._array(_elements(schema, field.name), count, at)
                elif count < -1 or not kind.is_nullable:
                    raise CountTooLarge(f"the array {field.name} has {count} elements")
            else:
                stop = self._end_of_whole(field_guard(schema, field.name), at)
                copy += frame[at:stop]
                at = stop
        if is_flexible:
            at = self._copy_tags(schema, copy, at)
        read: Reader = entity_reader(schema)
        entity, _ = read(memoryview(bytes(copy)), 0)
        for name, array in arrays.items():
            object.__setattr__(entity, name, array)  # the dataclass is frozen
        return entity, at

    def _array(self, elements: _Elements, count: int, at: int) -> Walk:
        """An array, whose first element is at ``at``."""
        frame, start = self._frame, at
        self._left[0] -= count
        if self._left[0] < 0:
            raise CountTooLarge(f"the message has more than {self._max_elements} elements")
        if count > len(frame) - at:
            raise CountTooLarge(f"an array of {count} elements does not fit into {len(frame) - at} bytes")
        opened: dict[int, tuple[Any, int]] = {}
        for index in range(count):
            if index % _STEP == _STEP - 1:
                yield
            if elements.guard is not None:
                tags_left = self._left[1]
                try:
                    stop = self._end_of(elements.guard, at)
                except ManyElements:
                    assert elements.schema is not None
                    self._left[1] = tags_left  # its tagged fields are counted again
                    opened[index] = yield from self.entity(elements.schema, at)
                    at = opened[index][1]
                    continue
                elements.read(frame, at)
                at = stop
            else:
                at += elements.read(frame, at)[1]
        return ElementArray(frame, start, count, elements.read, opened), at

    def _end_of(self, guard: Guard, at: int) -> int:
        """Returns the end of a field or an element that is read at once.

        :raises ManyElements: if it has too many elements for that.
        """
        small = [min(AT_ONCE, self._left[0]), self._left[1]]
        spendable = small[0]
        stop = guard(self._frame, at, len(self._frame), small)
        if stop > len(self._frame):
            raise CountTooLarge(f"a field of {stop - at} bytes, but only {len(self._frame) - at} bytes follow")
        self._left[0] -= spendable - small[0]
        self._left[1] = small[1]
        return stop

    def _end_of_whole(self, guard: Guard, at: int) -> int:
        """Returns the end of a field that cannot be read piece by piece."""
        try:
            return self._end_of(guard, at)
        except ManyElements:
            raise CountTooLarge(f"a field has more than {AT_ONCE} elements, and cannot be read in pieces") from None

    def _copy_tags(self, schema: type, copy: bytearray, at: int) -> int:
        known = _known_tags(schema)
        count, at = read_uvarint(self._frame, at)
        self._left[1] -= count
        if self._left[1] < 0:
            raise CountTooLarge(f"the message has more than {MAX_TAGS} tagged fields")
        kept = bytearray()
        kept_count = 0
        for _ in range(count):
            tag, at = read_uvarint(self._frame, at, LARGEST_TAG)
            size_bytes, at = read_uvarint(self._frame, at)
            stop = at + size_bytes
            if stop > len(self._frame):
                raise CountTooLarge(
                    f"a tagged field of {size_bytes} bytes, but only {len(self._frame) - at} bytes follow"
                )
            if tag in known:
                self._end_of_whole(known[tag], at)
                put_uvarint(kept, tag)
                put_uvarint(kept, size_bytes)
                kept += self._frame[at:stop]
                kept_count += 1
            at = stop
        put_uvarint(copy, kept_count)
        copy += kept
        return at


def _put_empty(out: bytearray, is_flexible: bool, *, is_null: bool) -> None:
    if is_flexible:
        out.append(0 if is_null else 1)
    else:
        out += b"\xff\xff\xff\xff" if is_null else bytes(4)


@cache
def _known_tags(schema: type) -> dict[int, Guard]:
    kinds = {field.name: FieldKind(field) for field in fields(schema)}
    return {kind.tag: field_guard(schema, name) for name, kind in kinds.items() if kind.tag is not None}


@cache
def _elements(schema: type, field: str) -> _Elements:
    (kind,) = (FieldKind(each) for each in fields(schema) if each.name == field)
    if kind.entity is not None:
        return _Elements(entity_guard(kind.entity), _tolerant_reader(kind.entity), kind.entity)
    return _Elements(None, _primitive_reader(kind.kafka_type, bool(schema.__flexible__)), None)  # type: ignore[attr-defined]


def _tolerant_reader(schema: type) -> Reader:
    """A reader of an entity that skips tagged fields which the schema does not have."""
    read: Reader = entity_reader(schema)
    guard = entity_guard(schema)

    def tolerant(frame: memoryview | bytes, at: int) -> tuple[Any, int]:
        try:
            return read(frame, at)
        except UnknownTag:
            stop = guard(memoryview(frame), at, len(frame), budget())
            return read(without_unknown_tags(schema, memoryview(frame)[at:stop]), 0)[0], stop - at

    return tolerant


def _primitive_reader(kafka_type: str, is_flexible: bool) -> Reader:
    if kafka_type == "uuid":
        return _read_uuid
    if kafka_type == "string":
        return _read_compact_string if is_flexible else _read_string
    return _fixed_reader(Struct(">" + FIXED_FORMATS[kafka_type]))


def _fixed_reader(layout: Struct) -> Reader:
    unpack, width = layout.unpack_from, layout.size

    def read(frame: memoryview | bytes, at: int) -> tuple[Any, int]:
        return unpack(frame, at)[0], width

    return read


def _read_uuid(frame: memoryview | bytes, at: int) -> tuple[UUID | None, int]:
    data = bytes(frame[at : at + UUID_BYTES])
    return (None if data == _ZERO_UUID else UUID(bytes=data)), UUID_BYTES


def _read_compact_string(frame: memoryview | bytes, at: int) -> tuple[str, int]:
    size_bytes, start = read_uvarint(frame, at)
    return _text(frame, start, size_bytes - 1), start + size_bytes - 1 - at


def _read_string(frame: memoryview | bytes, at: int) -> tuple[str, int]:
    (size_bytes,) = _INT16.unpack_from(frame, at)
    return _text(frame, at + _INT16.size, size_bytes), _INT16.size + size_bytes


def _text(frame: memoryview | bytes, start: int, size_bytes: int) -> str:
    stop = start + size_bytes
    if size_bytes < 0 or stop > len(frame):
        raise CountTooLarge(f"a string of {size_bytes} bytes, but only {len(frame) - start} bytes follow")
    return str(frame[start:stop], "utf-8")
