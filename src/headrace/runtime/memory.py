"""Gives memory that was freed back to the operating system.

glibc keeps freed memory for the next allocation, and one small object at the end of its heap is enough for it to keep
everything below. After a request that took a hundred megabytes the process would stay that large.
"""

from __future__ import annotations


def give_back_freed() -> None:
    """Asks the C library to return what it does not use. Takes a few milliseconds; does nothing without glibc."""
    import ctypes  # takes milliseconds to import, and few brokers ever need it

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
