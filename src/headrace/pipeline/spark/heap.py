"""Chooses the heap of Spark's Java process from the memory that this machine or container has.

Spark's own default is 1 GiB on any machine. Headrace takes half of the memory instead. The other half is for memory
outside of the heap: the Python processes of the driver and of the tasks, Arrow tables, the page cache of the database.

A container may have less memory than its machine. The limit is in a file of the control group of this process, or of
one of its parents::

    version 2    /sys/fs/cgroup/<group>/memory.max                        bytes, or "max"
    version 1    /sys/fs/cgroup/memory/<group>/memory.limit_in_bytes      bytes; a huge number for no limit

Inside a container the path of the group is often that of the host, which is not mounted. Then only the root of the
mount counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_MIB = 1 << 20
#: Spark refuses to start with less than 450 MiB.
_MIN_MIB = 512
#: Spark's own default, used on a small machine as long as that leaves a quarter of its memory.
_DEFAULT_MIB = 1024
#: Above 32 GiB Java's references take twice the room.
_MAX_MIB = 31 << 10


def chosen_heap(memory_bytes: int | None = None) -> str:
    """The size of the heap as Spark reads it, ``6144m``.

    :param memory_bytes: the memory of the machine; by default it is looked up.
    """
    total = (machine_memory_bytes() if memory_bytes is None else memory_bytes) // _MIB
    at_least = max(_MIN_MIB, min(_DEFAULT_MIB, total * 3 // 4))
    return f"{min(_MAX_MIB, max(at_least, total // 2))}m"


def machine_memory_bytes(root: Path = Path("/")) -> int:
    """The memory that this process may use: that of the machine, or less if a control group limits it."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_limits(root)])


def _limits(root: Path) -> Iterator[int]:
    for file in _limit_files(root):
        try:
            text = file.read_text(encoding="ascii").strip()
        except OSError:  # not mounted or not readable: the limit is unknown
            continue
        if text.isdecimal() and int(text):
            yield int(text)


def _limit_files(root: Path) -> Iterator[Path]:
    groups = root / "sys" / "fs" / "cgroup"
    try:
        memberships = (root / "proc" / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for membership in memberships:
        _, controllers, group = membership.split(":", 2)
        if not controllers:
            mount, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        path = Path(group.lstrip("/"))
        yield from (mount / part / name for part in (path, *path.parents))
