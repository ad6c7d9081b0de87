"""Settings of Python's garbage collector and of the C library's allocator, for a process that is a broker.

Python's collector looks at all objects that live long, again and again. In a broker most of those were there when it
started. A request makes hundreds of objects that are freed with it, and there are no cycles among them.

glibc keeps freed memory for the next allocation, and one small object at the end of its heap is enough for it to keep
everything below. After a request that took a hundred megabytes the process would stay that large.
"""

from __future__ import annotations

import gc

_COLLECT_AFTER = (50_000, 20, 20)


def collect_rarely() -> None:
    """Takes everything that is there now out of the collector's sight, and has it look less often at the rest."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def give_back_freed() -> None:
    """Asks the C library to return what it does not use. Takes a few milliseconds; does nothing without glibc."""
    import ctypes  # takes milliseconds to import, and few brokers ever need it

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
