"""Length-prefixed frames out of a byte stream, without I/O and without copying.

A frame is ``length int32`` and that many bytes. The owner asks for room (:meth:`FrameReader.room`), receives into it,
says how much came (:meth:`FrameReader.received`), and takes whole frames (:meth:`FrameReader.next_frame`) as views into
the one buffer. A view is good until the next call of ``room``: a connection handles one request at a time, so it never
receives while a view is in use.

The buffer grows to the largest frame under way and shrinks again when small ones follow, or when its owner has nothing
to do (:meth:`FrameReader.rest`). A peer cannot make the buffer take memory by a length alone. A small buffer grows with
the bytes that really come, at most doubling. A large buffer is mapped in its full size, so that it is never copied, and
the system gives it memory page by page, as bytes come.

Who wants to keep a frame has the buffer given away (:meth:`FrameReader.give_away`). The last few of those are used
again once nobody holds a view of them: the pages of a new buffer are filled with zeros first, which takes time for
large answers.
"""

from mmap import mmap
from struct import Struct

_LENGTH = Struct(">i")
_PREFIX_BYTES = _LENGTH.size

INITIAL_BYTES = 16 * 1024
#: Larger buffers are mapped. More is not kept at rest: it holds the largest batch that producers make by default.
MAPPED_BYTES = 2 * 1024 * 1024
_KEPT_BUFFERS = 3

Buffer = bytearray | mmap


class BadFrame(Exception):
    """A length that is negative or over the limit: the stream cannot be followed any further."""


class FrameReader:
    __slots__ = ("_buffer", "_end", "_given", "_last_frame_bytes", "_max_frame_bytes", "_readonly", "_start", "_view")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._use(bytearray(INITIAL_BYTES))
        self._start = 0  # of the first byte not taken yet
        self._end = 0  # of what was received
        self._last_frame_bytes = 0
        self._given: list[Buffer] = []

    def room(self) -> memoryview:
        """Where to receive; never empty."""
        pending_bytes, capacity_bytes = self._end - self._start, len(self._buffer)
        if pending_bytes == 0:
            self._start = self._end = 0
            if capacity_bytes > INITIAL_BYTES > self._last_frame_bytes:
                self._replace_buffer(bytearray(INITIAL_BYTES))
                self._given.clear()
        elif self._start + self._wanted_bytes() > capacity_bytes:
            if self._start:
                self._view[:pending_bytes] = self._view[self._start : self._end]
                self._start, self._end = 0, pending_bytes
            wanted_bytes = self._wanted_bytes()
            if wanted_bytes > MAPPED_BYTES:
                if wanted_bytes > capacity_bytes:
                    self._replace_buffer(_new_buffer(wanted_bytes))
            elif pending_bytes == capacity_bytes:
                self._replace_buffer(bytearray(min(wanted_bytes, capacity_bytes * 2)))
        return self._view[self._end :]

    def rest(self) -> None:
        """Lets go of a large buffer. All frames were taken, and nobody looks at them any more."""
        if len(self._buffer) > MAPPED_BYTES and self._start == self._end:
            self._replace_buffer(bytearray(INITIAL_BYTES))

    def received(self, size_bytes: int) -> None:
        self._end += size_bytes

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None until more is received.

        :raises BadFrame: if the length cannot be right.
        """
        start = self._start
        available_bytes = self._end - start
        if available_bytes < _PREFIX_BYTES:
            return None
        (size_bytes,) = _LENGTH.unpack_from(self._buffer, start)
        if size_bytes < 0 or size_bytes > self._max_frame_bytes:
            raise BadFrame(f"a frame of {size_bytes} bytes; at most {self._max_frame_bytes} are taken")
        stop = start + _PREFIX_BYTES + size_bytes
        if stop > self._end:
            return None
        self._start = stop
        self._last_frame_bytes = size_bytes
        return self._readonly[start + _PREFIX_BYTES : stop]

    def has_frame(self) -> bool:
        """Whether ``next_frame`` has something to give, or to complain about."""
        available_bytes = self._end - self._start
        if available_bytes < _PREFIX_BYTES:
            return False
        (size_bytes,) = _LENGTH.unpack_from(self._buffer, self._start)
        return bool(size_bytes < available_bytes)

    def give_away(self) -> None:
        """Goes on with another buffer: the frames taken so far stay good for as long as someone holds them."""
        given, capacity_bytes = self._buffer, len(self._buffer)
        free = next((one for one in self._given if len(one) == capacity_bytes and _is_free(one)), None)
        if free is not None:
            self._given = [one for one in self._given if one is not free]
        self._replace_buffer(_new_buffer(capacity_bytes) if free is None else free)
        self._given = [*self._given[1 - _KEPT_BUFFERS :], given]

    @property
    def capacity_bytes(self) -> int:
        return len(self._buffer)

    def _wanted_bytes(self) -> int:
        """The size of the frame under way."""
        if self._end - self._start < _PREFIX_BYTES:
            return _PREFIX_BYTES
        (size_bytes,) = _LENGTH.unpack_from(self._buffer, self._start)
        return int(size_bytes) + _PREFIX_BYTES

    def _replace_buffer(self, buffer: Buffer) -> None:
        """Another buffer with what is pending at its start."""
        pending = self._view[self._start : self._end]
        buffer[: len(pending)] = pending
        self._use(buffer)
        self._start, self._end = 0, len(pending)

    def _use(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._readonly = self._view.toreadonly()  # kio reads from nothing else


def _new_buffer(size_bytes: int) -> Buffer:
    return bytearray(size_bytes) if size_bytes <= MAPPED_BYTES else mmap(-1, size_bytes)


def _is_free(buffer: Buffer) -> bool:
    """Whether nobody has a view of it: only then can its size be changed."""
    try:
        if isinstance(buffer, mmap):
            buffer.resize(len(buffer))
        else:
            buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
