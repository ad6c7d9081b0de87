"""Chooses the heap of Spark's Java process from the memory that this machine or container has.

Spark's own default is 1 GiB on any machine. Half of the memory is taken instead. The other half is for what Java does
not count as heap: the Python processes of the driver and of the tasks, Arrow tables, the database's page cache.

A container has less memory than its machine. The limit is in a file of the control group that this process is in, or in
one of its parents::

    version 2    /sys/fs/cgroup/<group>/memory.max                        bytes, or "max"
    version 1    /sys/fs/cgroup/memory/<group>/memory.limit_in_bytes      bytes; a huge number for no limit

Inside a container the group's path often is that of the host, which is not mounted: then only the mount's root counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_MIB = 1 << 20
#: Spark refuses to start with less than 450 MiB.
_LEAST_MIB = 512
#: Spark's own default, taken on a small machine as long as a quarter of its memory is left.
_USUAL_MIB = 1024
#: Above 32 GiB Java's references take twice the room.
_MOST_MIB = 31 << 10


def chosen_heap(memory_bytes: int | None = None) -> str:
    """A heap in Spark's words, ``6144m``.

    :param memory_bytes: of the machine, if that is known.
    """
    total = (machine_memory_bytes() if memory_bytes is None else memory_bytes) // _MIB
    at_least = max(_LEAST_MIB, min(_USUAL_MIB, total * 3 // 4))
    return f"{min(_MOST_MIB, max(at_least, total // 2))}m"


def machine_memory_bytes(root: Path = Path("/")) -> int:
    """What this process may use: the machine's memory, or less if a control group says so."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_limits(root)])


def _limits(root: Path) -> Iterator[int]:
    for file in _limit_files(root):
        try:
            text = file.read_text(encoding="ascii").strip()
        except OSError:  # not mounted, or not for us to read: no limit that we could know
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
