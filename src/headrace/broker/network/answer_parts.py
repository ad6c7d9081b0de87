"""An encoded answer as the parts that are sent: bytes, and files at their places between the bytes.

The encoder does not copy records from their files. It notes the place of each file in the encoded bytes. Small files
are read and inserted there, because one send costs less than three. Larger files stay files until they are sent.
"""

from __future__ import annotations

from collections import deque

from headrace.protocol.wire.encoder import Placed, Sendable

#: Files of up to this many bytes are read and sent with the bytes around them: one system call instead of three.
READ_BYTES = 16 * 1024


class FilePart:
    """A file of an answer: which bytes are still to be sent."""

    __slots__ = ("left_bytes", "position", "source")

    def __init__(self, source: Sendable) -> None:
        self.source = source
        self.position = source.position
        self.left_bytes = len(source)

    def advance(self, size_bytes: int) -> None:
        self.position += size_bytes
        self.left_bytes -= size_bytes


Part = memoryview | FilePart
#: The parts that are still to be sent, in order.
Parts = deque[Part]


def read_whole(source: Sendable) -> bytes:
    """Returns the bytes of a part of a file.

    :raises OSError: if the file has become shorter.
    """
    content = source.read()
    if len(content) < len(source):
        raise OSError(f"{source} became shorter while it was read")
    return content


def size_of(placed: list[Placed]) -> int:
    if len(placed) == 1:
        return len(placed[0][1])
    return sum(len(sendable) for _, sendable in placed)


def joined(out: bytearray, placed: list[Placed]) -> bytearray:
    """Returns the encoded bytes with the contents of the files inserted."""
    if len(placed) == 1:
        position, sendable = placed[0]
        out[position:position] = read_whole(sendable)
        return out
    result, start = bytearray(), 0
    for position, sendable in placed:
        result += memoryview(out)[start:position]
        start = position
        if len(sendable):
            result += read_whole(sendable)
    result += memoryview(out)[start:]
    return result


def parts_of(out: bytearray, placed: list[Placed]) -> list[Part]:
    """Returns the encoded bytes, and the files at their places between them."""
    view, parts, start = memoryview(out), list[Part](), 0
    for position, sendable in placed:
        if position > start:
            parts.append(view[start:position])
        if len(sendable):
            parts.append(FilePart(sendable))
        start = position
    if start < len(out):
        parts.append(view[start:])
    return parts
