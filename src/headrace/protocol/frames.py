"""Splits a byte stream into length-prefixed frames, without I/O and without copying.

A frame is ``length int32`` and that many bytes. The owner asks for room (:meth:`FrameReader.room`), receives bytes into
it, says how many came (:meth:`FrameReader.received`), and takes whole frames (:meth:`FrameReader.next_frame`) as views
of the one buffer. A view is valid until the next call of ``room``. A connection handles one request at a time, so it
never receives while a view is in use.

The buffer grows to the size of the largest frame. It shrinks when smaller frames follow, or when its owner is idle
(:meth:`FrameReader.shrink`). A peer cannot make the buffer take memory with a length alone. A small buffer grows with
the bytes that really come, at most to its double. A large buffer is mapped in its full size, so that it is never
copied; the system gives it memory page by page, as bytes come.

To keep a frame, the owner gives the whole buffer away (:meth:`FrameReader.give_away`) and continues with another one.
The last few buffers are used again when nobody holds a view of them: a new buffer is filled with zeros first, which
takes time for large responses.
"""

from mmap import mmap
from struct import Struct

from headrace.protocol.spare_buffers import Buffer, SpareBuffers, is_free

_LENGTH = Struct(">i")
_PREFIX_BYTES = _LENGTH.size

INITIAL_BYTES = 16 * 1024
#: Larger buffers are mapped, and an idle reader does not keep them. By default, no producer sends a larger batch.
MAPPED_BYTES = 2 * 1024 * 1024
_KEPT_BUFFERS = 3


class BadFrame(Exception):
    """The length of a frame is negative or above the limit, so the rest of the stream cannot be read."""


class FrameReader:
    __slots__ = (
        "_buffer", "_end", "_given", "_last_frame_bytes", "_readonly", "_spares", "_start", "_view", "max_frame_bytes",
    )  # fmt: skip

    def __init__(self, max_frame_bytes: int, spares: SpareBuffers | None = None) -> None:
        """
        :param spares: where large buffers come from, and where :meth:`shrink` puts them.
        """
        #: The owner may change it. A client that has not logged in may send less than others.
        self.max_frame_bytes = max_frame_bytes
        self._use(bytearray(INITIAL_BYTES))
        self._start = 0  # the first byte that was not taken yet
        self._end = 0  # behind the last byte that was received
        self._last_frame_bytes = 0
        self._given: list[Buffer] = []
        self._spares = spares

    def room(self) -> memoryview:
        """The free part of the buffer, for the next receive; never empty."""
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
                    spare = None if self._spares is None else self._spares.take(wanted_bytes)
                    self._replace_buffer(_new_buffer(wanted_bytes) if spare is None else spare)
            elif pending_bytes == capacity_bytes:
                self._replace_buffer(bytearray(min(wanted_bytes, capacity_bytes * 2)))
        return self._view[self._end :]

    def spare(self) -> memoryview:
        """The rest of the buffer behind the received bytes; may be empty. Received frames do not move."""
        return self._view[self._end :]

    def shrink(self) -> None:
        """Gives a large buffer back. The caller has taken all frames, and does not use them any more."""
        if len(self._buffer) > MAPPED_BYTES and self._start == self._end:
            large = self._buffer
            self._replace_buffer(bytearray(INITIAL_BYTES))
            if self._spares is not None and isinstance(large, mmap):
                self._spares.give(large)

    def release(self) -> None:
        """Keeps only as much memory as the bytes that were received and not taken need. The caller does not use the
        frames any more that it has taken."""
        self._given.clear()
        pending_bytes = self._end - self._start
        if max(INITIAL_BYTES, pending_bytes) < len(self._buffer):
            self._replace_buffer(_new_buffer(max(INITIAL_BYTES, pending_bytes)))

    def received(self, size_bytes: int) -> None:
        self._end += size_bytes

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None until more is received.

        :raises BadFrame: if the length is negative or above the limit.
        """
        start = self._start
        available_bytes = self._end - start
        if available_bytes < _PREFIX_BYTES:
            return None
        (size_bytes,) = _LENGTH.unpack_from(self._buffer, start)
        if size_bytes < 0 or size_bytes > self.max_frame_bytes:
            raise BadFrame(f"a frame of {size_bytes} bytes; at most {self.max_frame_bytes} are allowed")
        stop = start + _PREFIX_BYTES + size_bytes
        if stop > self._end:
            return None
        self._start = stop
        self._last_frame_bytes = size_bytes
        return self._readonly[start + _PREFIX_BYTES : stop]

    def has_frame(self) -> bool:
        """Whether ``next_frame`` would return a frame, or raise."""
        available_bytes = self._end - self._start
        if available_bytes < _PREFIX_BYTES:
            return False
        (size_bytes,) = _LENGTH.unpack_from(self._buffer, self._start)
        return bool(size_bytes + _PREFIX_BYTES <= available_bytes or size_bytes > self.max_frame_bytes)

    def give_away(self) -> None:
        """Continues with another buffer. The frames that were taken so far stay valid as long as somebody holds
        them."""
        given, capacity_bytes = self._buffer, len(self._buffer)
        free = next((one for one in self._given if len(one) == capacity_bytes and is_free(one)), None)
        if free is not None:
            self._given = [one for one in self._given if one is not free]
        self._replace_buffer(_new_buffer(capacity_bytes) if free is None else free)
        self._given = [*self._given[1 - _KEPT_BUFFERS :], given]

    @property
    def last_frame_bytes(self) -> int:
        """The size of the frame that was taken last."""
        return self._last_frame_bytes

    @property
    def coming_frame_bytes(self) -> int:
        """The size of the frame of which a part was received; 0 if nothing was received."""
        return self._wanted_bytes() if self._end > self._start else 0

    @property
    def missing_bytes(self) -> int:
        """How many bytes complete the coming frame, or its length if that is unknown. Asked while no frame is whole."""
        return self._wanted_bytes() - (self._end - self._start)

    @property
    def capacity_bytes(self) -> int:
        return len(self._buffer)

    def _wanted_bytes(self) -> int:
        """The size of the frame that is being received."""
        if self._end - self._start < _PREFIX_BYTES:
            return _PREFIX_BYTES
        (size_bytes,) = _LENGTH.unpack_from(self._buffer, self._start)
        return int(size_bytes) + _PREFIX_BYTES

    def _replace_buffer(self, buffer: Buffer) -> None:
        """Continues with another buffer, and copies the pending bytes to its start."""
        pending = self._view[self._start : self._end]
        buffer[: len(pending)] = pending
        self._use(buffer)
        self._start, self._end = 0, len(pending)

    def _use(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._readonly = self._view.toreadonly()  # kio reads from nothing else


def encode_frame(content: bytes) -> bytearray:
    """Returns the content with its length before it."""
    return bytearray(_LENGTH.pack(len(content)) + content)


def _new_buffer(size_bytes: int) -> Buffer:
    return bytearray(size_bytes) if size_bytes <= MAPPED_BYTES else mmap(-1, size_bytes)
