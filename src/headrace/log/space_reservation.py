"""Reserves disk space for the file of a new segment (``preallocate``).

Kafka makes the file as large as the segment may become, and cuts it when the segment is closed; after a crash the file
ends with zeros. Here the blocks are reserved behind the end of the file (``FALLOC_FL_KEEP_SIZE``): the size of the file
is that of its batches at every moment, also after a crash. Python's ``os.posix_fallocate`` would change the size.
"""

import errno
import os
from collections.abc import Callable
from functools import cache

_KEEP_SIZE = 1
#: The file system, or the system, cannot reserve space.
_CANNOT_RESERVE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


def reserve(fd: int, size_bytes: int) -> None:
    """Reserves space for a file of this size. Does nothing where the file system cannot reserve space.

    :raises OSError: if the disk is full, or fails.
    """
    number = _fallocate()(fd, size_bytes)
    if number and number not in _CANNOT_RESERVE:
        raise OSError(number, os.strerror(number))


@cache
def _fallocate() -> Callable[[int, int], int]:
    """Returns a function that reserves space, and returns 0 or the number of the error."""
    import ctypes  # few topics have preallocate

    function = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if function is None:
        return lambda _fd, _size_bytes: errno.ENOSYS
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return lambda fd, size_bytes: ctypes.get_errno() if function(fd, _KEEP_SIZE, 0, size_bytes) else 0
