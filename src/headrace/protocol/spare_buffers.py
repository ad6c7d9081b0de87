"""Keeps large receive buffers for the next large frame.

A buffer of 9 MB costs 1.7 ms when its memory is returned to the system, and as much again when the next buffer gets
memory page by page. An event loop serves nobody else in that time. So a reader that is done with a large buffer gives
it to its :class:`SpareBuffers`. Buffers that were not used for some time are freed by :meth:`SpareBuffers.trim`.
"""

from collections.abc import Callable
from mmap import mmap

#: All spare buffers together are at most this large.
MAX_SPARE_BYTES = 64 * 1024 * 1024
#: How many times as large as a frame its buffer may be.
_MOST_TIMES_TOO_LARGE = 4

Buffer = bytearray | mmap


class SpareBuffers:
    """Buffers without an owner. Several threads may take buffers; one thread gives and trims."""

    def __init__(self, on_given: Callable[[], None] = lambda: None) -> None:
        """
        :param on_given: called when there is a spare buffer. The owner then calls :meth:`trim` from time to time.
        """
        self._on_given = on_given
        #: Each buffer with whether it was there at the last trim.
        self._buffers: dict[mmap, bool] = {}

    def __len__(self) -> int:
        return len(self._buffers)

    def take(self, size_bytes: int) -> mmap | None:
        """Returns a buffer of at least this size, or None."""
        for buffer in tuple(self._buffers):
            is_suitable = size_bytes <= len(buffer) <= _MOST_TIMES_TOO_LARGE * size_bytes
            if is_suitable and self._buffers.pop(buffer, None) is not None:  # otherwise another thread was faster
                return buffer
        return None

    def give(self, buffer: mmap) -> None:
        """Keeps a buffer, if there is room for it and nobody has a view of it."""
        size_bytes = sum(map(len, tuple(self._buffers)))
        if size_bytes + len(buffer) <= MAX_SPARE_BYTES and is_free(buffer):
            self._buffers[buffer] = False
            self._on_given()

    def trim(self) -> bool:
        """Frees one buffer that nobody has taken since the last call. Returns whether there are more buffers."""
        unused = next((buffer for buffer, is_old in tuple(self._buffers.items()) if is_old), None)
        if unused is not None:
            self._buffers.pop(unused, None)
        for buffer in tuple(self._buffers):
            self._buffers[buffer] = True
        return bool(self._buffers)


def is_free(buffer: Buffer) -> bool:
    """Whether nobody has a view of the buffer. Only then can its size be changed."""
    try:
        if isinstance(buffer, mmap):
            buffer.resize(len(buffer))
        else:
            buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
