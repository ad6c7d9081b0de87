"""Checks the counts of a message's arrays and tagged fields, and the lengths of its texts, before kio reads it.

kio reserves memory for as many elements as an array claims to have, before it reads the first element. A count of
2**31 - 1 asks for 16 GiB, and if the system has not so much memory, the process is aborted: six bytes from any client
would end the broker. So each array is checked first. Each element takes at least one byte, so a count that is larger
than the rest of the frame is rejected, and memory stays in proportion to the bytes that were really sent. A null array
is rejected too, if the schema does not allow null: kio would accept it.

A guard also counts. Its budget says how many elements all arrays of a message may have together. A message with more
raises :class:`ManyElements`, before anything loops over the elements, and is read piece by piece
(``large_messages.py``). The number of tagged fields is limited as well, because a peer may send millions of them in one
frame.

A text has at most 32,767 bytes, as in Kafka. Older versions have no room for a longer length. In flexible versions a
client could send a name of 100 MB, which then would be compared, matched, kept and shown in metrics.

As in ``encoder.py``, a function is generated for each schema. The function skips from array to array and reads nothing
else. In a message that is short enough, fields after the last array are not read: they have room neither for a text
that is too long, nor for many tagged fields. That costs about a microsecond per request, as much as kio's own work.
"""

from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812
from sys import maxsize
from typing import Any

from headrace.protocol.wire.schema_fields import FieldKind
from headrace.protocol.wire.varints import LARGEST_TAG, BadVarint, read_long_uvarint

#: How many elements of arrays, and how many tagged fields, the rest of the message may have.
Budget = list[int]
#: Takes a frame, where a message begins in it, where the frame ends, and a budget. Returns where the guard stopped.
Guard = Callable[[memoryview, int, int, Budget], int]

#: Kafka 4.4 has the same limit per request.
MAX_TAGS = 10_000
#: The longest text. Kafka has the same limit.
MAX_TEXT_BYTES = 0x7FFF
#: A shorter message has no text that is too long. It has fewer tagged fields than MAX_TAGS, because each of them has at
#: least two bytes, its tag and its length.
_SHORT_BYTES = 2 * MAX_TAGS

_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from
_LENGTH_BYTES = {"string": 2, "bytes": 4, "records": 4}


class CountTooLarge(ValueError):
    """A count or a length does not fit into the rest of the message, or is above a limit."""


#: The exceptions of a guard for bytes that are not a message: a wrong count, or a frame that ends too early.
GuardFailed = (CountTooLarge, BadVarint, IndexError, StructError)


class ManyElements(Exception):
    """The message may be valid, but has more elements than its budget. It must be read piece by piece."""


def budget(max_elements: int = maxsize) -> Budget:
    return [max_elements, MAX_TAGS]


def no_guard(_frame: memoryview, at: int, _end: int, _budget: Budget) -> int:
    return at


@cache
def guard_of(schema: type) -> Guard:
    """The guard of a whole message."""
    return _Source(schema).compiled_message()


@cache
def entity_guard(schema: type) -> Guard:
    """The guard of an entity inside a message; returns where the entity ends."""
    return _Source(schema).compiled()


@cache
def field_guard(schema: type, field: str) -> Guard:
    """The guard of a single field of an entity; returns where the field ends."""
    return _Source(schema).compiled_for(field)


@cache
def count_reader(schema: type) -> Callable[[memoryview, int], tuple[int, int]]:
    """Reads the count of an array; returns the count (-1 for null), and where the first element begins."""
    return _Source(schema).compiled_count()


@cache
def _has_arrays(schema: type) -> bool:
    return any(_holds_arrays(FieldKind(field)) for field in fields(schema))


def _holds_arrays(kind: FieldKind) -> bool:
    return kind.is_array or (kind.entity is not None and _has_arrays(kind.entity))


def _is_text(kind: FieldKind) -> bool:
    return not kind.is_array and kind.entity is None and kind.kafka_type == "string"


def too_large(count: int, left_bytes: int) -> CountTooLarge:
    return CountTooLarge(f"an array of {count} elements does not fit into {left_bytes} bytes")


def too_long(size_bytes: int) -> CountTooLarge:
    return CountTooLarge(f"a text has {size_bytes} bytes, more than {MAX_TEXT_BYTES}")


def many_elements() -> ManyElements:
    return ManyElements("the message has more elements than are read at once")


def skip_tags(frame: memoryview, at: int, end: int, count: int, known: dict[int, Guard], budget: Budget) -> int:
    """Skips a section of tagged fields, and guards those fields that have arrays."""
    if count > 0x7F:
        count, at = read_long_uvarint(frame, at)
    budget[1] -= count
    if budget[1] < 0:
        raise CountTooLarge(f"the message has more than {MAX_TAGS} tagged fields")
    for _ in range(count):
        tag, at = frame[at], at + 1
        if tag > 0x7F:
            tag, at = read_long_uvarint(frame, at, LARGEST_TAG)
        size_bytes, at = frame[at], at + 1
        if size_bytes > 0x7F:
            size_bytes, at = read_long_uvarint(frame, at)
        if at + size_bytes > end:
            raise CountTooLarge(f"a tagged field of {size_bytes} bytes, but only {end - at} bytes follow")
        if tag in known:
            known[tag](frame, at, at + size_bytes, budget)
        at += size_bytes
    return at


class _Source:
    """Writes the source of one guard. A run of fixed-width fields becomes one addition."""

    def __init__(self, schema: type) -> None:
        self._schema = schema
        self._flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
        self._lines: list[str] = []
        self._fixed_bytes = 0
        self._namespace: dict[str, Any] = {
            "int16": _INT16,
            "int32": _INT32,
            "read_long_uvarint": read_long_uvarint,
            "too_large": too_large,
            "too_long": too_long,
            "many_elements": many_elements,
            "skip_tags": skip_tags,
        }

    def compiled_message(self) -> Guard:
        """The guard of a message. It leaves out the fields after the last array, unless they are long."""
        if not self._flexible and not _has_arrays(self._schema):
            return no_guard
        known = self._known_tags(_holds_arrays)
        if known:
            return entity_guard(self._schema)
        untagged = self._untagged()
        while untagged and not _holds_arrays(FieldKind(untagged[-1])):
            untagged.pop()
        if self._flexible:
            self._namespace["guard_all"] = entity_guard(self._schema)
            self._lines.append(f"if end - at > {_SHORT_BYTES}: return guard_all(frame, at, end, budget)")
        for field in untagged:
            self._skip(FieldKind(field))
        self._flush()
        return self._function()

    def compiled(self) -> Guard:
        """The guard of all fields."""
        for field in self._untagged():
            self._skip(FieldKind(field))
        if self._flexible:
            self._skip_tag_section(self._known_tags(lambda kind: _holds_arrays(kind) or _is_text(kind)))
        self._flush()
        return self._function()

    def _untagged(self) -> list[Field[Any]]:
        return [field for field in fields(self._schema) if "tag" not in field.metadata]

    def _known_tags(self, is_guarded: Callable[[FieldKind], bool]) -> dict[int, Guard]:
        tagged = [field for field in fields(self._schema) if "tag" in field.metadata]
        return {field.metadata["tag"]: self._tag_guard(field) for field in tagged if is_guarded(FieldKind(field))}

    def compiled_for(self, name: str) -> Guard:
        (field,) = (field for field in fields(self._schema) if field.name == name)
        return self._tag_guard(field)

    def compiled_count(self) -> Callable[[memoryview, int], tuple[int, int]]:
        body = "\n".join(f"    {line}" for line in self._read_length("count", 4))
        exec(f"def read_count(frame, at):\n{body}\n    return count, at\n", self._namespace)
        read_count: Callable[[memoryview, int], tuple[int, int]] = self._namespace["read_count"]
        return read_count

    def _steps(self) -> list[str]:
        """The lines that skip one entity without arrays."""
        for field in self._untagged():
            self._skip(FieldKind(field))
        self._flush()
        if self._flexible:
            self._lines += [
                "tag_count = frame[at]; at += 1",
                "if tag_count: at = skip_tags(frame, at, end, tag_count, {}, budget)",
            ]
        return self._lines

    def _function(self) -> Guard:
        body = "\n".join(f"    {line}" for line in self._lines)
        exec(f"def guard(frame, at, end, budget):\n{body}\n    return at\n", self._namespace)
        guard: Guard = self._namespace["guard"]
        return guard

    def _tag_guard(self, field: Field[Any]) -> Guard:
        inner = _Source(self._schema)
        inner._skip(FieldKind(field))
        inner._flush()
        return inner._function()

    def _skip_tag_section(self, known: dict[int, Guard]) -> None:
        self._flush()
        self._namespace["known"] = known
        self._lines += [
            "count = frame[at]; at += 1",
            "if count: at = skip_tags(frame, at, end, count, known, budget)",
        ]

    def _flush(self) -> None:
        if self._fixed_bytes:
            self._lines.append(f"at += {self._fixed_bytes}")
            self._fixed_bytes = 0

    def _skip(self, kind: FieldKind) -> None:
        if kind.is_array:
            self._flush()
            self._skip_array(kind)
        elif kind.entity is not None:
            self._flush()
            call = f"at = {self._entity_name(kind.entity)}(frame, at, end, budget)"
            if kind.is_nullable:
                self._lines += ["is_there = frame[at] < 0x80; at += 1", f"if is_there: {call}"]
            else:
                self._lines.append(call)
        elif (width := kind.element_bytes) is not None:
            self._fixed_bytes += width
        else:
            self._flush()
            self._lines += self._skip_length(kind.kafka_type)

    def _entity_name(self, entity: type) -> str:
        name = f"guard_{entity.__name__}"
        self._namespace[name] = entity_guard(entity)
        return name

    def _skip_array(self, kind: FieldKind) -> None:
        self._lines += self._read_length("count", 4)
        if not kind.is_nullable:
            self._lines.append("if count < 0: raise too_large(count, end - at)")
        width = kind.element_bytes
        if width is not None:
            self._lines.append(f"if count * {width} > end - at: raise too_large(count, end - at)")
            self._lines += self._spend_count()
            self._lines.append(f"if count > 0: at += count * {width}")
            return
        self._lines.append("if count > end - at: raise too_large(count, end - at)")
        self._lines += self._spend_count()
        self._lines.append("for _ in range(count):")
        if kind.entity is not None and not _has_arrays(kind.entity):
            step = _Source(kind.entity)._steps()  # inlined: a call per element would cost more than the steps
        elif kind.entity is not None:
            step = [f"at = {self._entity_name(kind.entity)}(frame, at, end, budget)"]
        else:
            step = self._skip_length(kind.kafka_type)
        self._lines += [f"    {line}" for line in step]

    @staticmethod
    def _spend_count() -> list[str]:
        return ["budget[0] -= count", "if budget[0] < 0: raise many_elements()"]

    def _skip_length(self, kafka_type: str) -> list[str]:
        lines = [*self._read_length("size_bytes", _LENGTH_BYTES[kafka_type]), "if size_bytes > 0: at += size_bytes"]
        if self._flexible and kafka_type == "string":
            lines.append(f"if size_bytes > {MAX_TEXT_BYTES}: raise too_long(size_bytes)")
        return lines

    def _read_length(self, name: str, legacy_bytes: int) -> list[str]:
        """Reads a length or count into ``name``. A compact length is written plus one, so null is -1 here as well."""
        if self._flexible:
            return [
                f"{name} = frame[at]; at += 1",
                f"if {name} > 0x7F: {name}, at = read_long_uvarint(frame, at)",
                f"{name} -= 1",
            ]
        return [f"({name},) = int{legacy_bytes * 8}(frame, at); at += {legacy_bytes}"]
