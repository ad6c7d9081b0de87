"""Tunes Python's garbage collector and the C library's allocator for the process of a broker.

Python's collector checks all long-lived objects again and again. In a broker, most of those exist since its start. A
request creates hundreds of objects that are freed with it, and there are no cycles among them.

glibc keeps freed memory for the next allocation. One small object at the end of its heap makes glibc keep all memory
below that object. So after a request that took a hundred megabytes, the process would stay that large.
"""

from __future__ import annotations

import gc

_COLLECT_AFTER = (50_000, 20, 20)


def pause_collections() -> None:
    """Stops garbage collections until ``collect_rarely``. A start creates objects that nearly all stay."""
    gc.disable()


def collect_rarely() -> None:
    """Exempts all present objects from garbage collection, and makes collections of new objects rarer."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    gc.enable()


def give_back_freed() -> None:
    """Makes the C library return unused memory to the system. Takes a few milliseconds; does nothing without glibc."""
    import ctypes  # takes milliseconds to import, and few brokers ever need it

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
