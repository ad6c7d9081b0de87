"""Checks that a log dir belongs to this broker (``meta.properties``), and that only one process uses it (``.lock``).

::

    version=1
    broker.id=1
    node.id=1
    cluster.id=...
    directory.id=...

Kafka wrote ``broker.id`` in version 0 and ``node.id`` in version 1; both are written and either is read.
"""

import fcntl
from collections.abc import Iterable
from uuid import uuid4

from headrace.log.disk import Disk
from headrace.log.partition_metadata import encode_uuid

META = "meta.properties"
LOCK = ".lock"


class LogDirError(Exception):
    """A log dir cannot be used, and the broker must not start. The message says why."""


def lock(disk: Disk, folder: str) -> int:
    """Locks a folder; returns the file descriptor that holds the lock. To close it gives up the lock.

    :raises LogDirError: if another process has the lock.
    """
    fd = disk.open(f"{folder}/{LOCK}")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        disk.close(fd)
        raise LogDirError(
            f"log dir {folder} is in use by another process, which holds {folder}/{LOCK}: "
            "stop that process, or set log.dirs to another folder"
        ) from None
    return fd


def claim(disk: Disk, folder: str, broker_id: int, cluster_id: str) -> None:
    """Writes ``meta.properties`` if the dir is new; otherwise checks that the dir is ours.

    :raises LogDirError: if it belongs to another broker or another cluster.
    """
    path = f"{folder}/{META}"
    data = disk.read_file(path)
    if data is None:
        disk.write_file(path, _encode(broker_id, cluster_id).encode(), sync=True)
        return
    found = parse_properties(data.decode(errors="replace"))
    found_broker = found.get("node.id", found.get("broker.id"))
    if found_broker is not None and found_broker != str(broker_id):
        raise LogDirError(
            f"log dir {folder} belongs to broker {found_broker}, this is broker {broker_id} ({path}): "
            f"set broker.id={found_broker}, or set log.dirs to another folder"
        )
    found_cluster = found.get("cluster.id")
    if found_cluster is not None and found_cluster != cluster_id:
        raise LogDirError(
            f"log dir {folder} belongs to cluster {found_cluster}, this is cluster {cluster_id} ({path}): "
            "set log.dirs to another folder, or connect the broker to its own cluster"
        )


def known_owner(disk: Disk, folders: Iterable[str]) -> tuple[int | None, str | None]:
    """The broker and the cluster that the first folder with a ``meta.properties`` names."""
    for folder in folders:
        try:
            data = disk.read_file(f"{folder}/{META}")
        except OSError:
            continue  # loading the folder will fail with the same error, and log it
        if data is not None:
            found = parse_properties(data.decode(errors="replace"))
            broker_id = found.get("node.id", found.get("broker.id", ""))
            return (int(broker_id) if broker_id.isdecimal() else None), found.get("cluster.id")
    return None, None


def _encode(broker_id: int, cluster_id: str) -> str:
    fields = {
        "version": 1,
        "broker.id": broker_id,
        "node.id": broker_id,
        "cluster.id": cluster_id,
        "directory.id": encode_uuid(uuid4()),
    }
    return "".join(f"{name}={value}\n" for name, value in fields.items())


def parse_properties(text: str) -> dict[str, str]:
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}
