"""Walks over the bytes of one message: numbers, lengths and slices, each checked against the end of the bytes."""

from struct import Struct
from sys import maxsize

from headrace.protocol.wire.varints import LARGEST_TAG, read_long_uvarint, read_uvarint


def skip_tagged_fields(data: bytes | memoryview, at: int, max_fields: int = maxsize) -> int:
    """Returns the end of a section of tagged fields.

    :raises ValueError: if the section has more fields than allowed, or goes past the end of the message.
    :raises IndexError: if the message ends inside a number of the section.
    """
    if not data[at]:
        return at + 1
    count, at = read_uvarint(data, at)
    if count > max_fields:
        raise ValueError(f"{count} tagged fields, where at most {max_fields} are read")
    for _ in range(count):
        _, at = read_uvarint(data, at, LARGEST_TAG)
        size_bytes, at = read_uvarint(data, at)
        if size_bytes > len(data) - at:
            raise ValueError(f"a tagged field of {size_bytes} bytes, but only {len(data) - at} bytes follow")
        at += size_bytes
    return at


class WireReader:
    """A position in the bytes of a message. Each method reads what is there, and moves the position behind it."""

    __slots__ = ("at", "data")

    def __init__(self, data: memoryview, at: int = 0) -> None:
        self.data = data
        self.at = at

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        """
        :raises struct.error: if the message ends before that.
        """
        values = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return values

    def uvarint(self) -> int:
        """
        :raises BadVarint: if it is too long or too large.
        :raises IndexError: if the message ends before that.
        """
        byte = self.data[self.at]
        self.at += 1
        if byte < 0x80:
            return byte
        value, self.at = read_long_uvarint(self.data, self.at)
        return value

    def slice(self, size_bytes: int) -> memoryview:
        """The next bytes, without copying them.

        :raises ValueError: if the message has fewer.
        """
        end = self.at + size_bytes
        if size_bytes < 0 or end > len(self.data):
            raise ValueError(f"a field of {size_bytes} bytes, but only {len(self.data) - self.at} bytes follow")
        found = self.data[self.at : end]
        self.at = end
        return found

    def skip_tags(self) -> None:
        """Skips a section of tagged fields."""
        self.at = skip_tagged_fields(self.data, self.at)
