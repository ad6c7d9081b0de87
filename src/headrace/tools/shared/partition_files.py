"""JSON files that name partitions: what delete-records, leader-election and reassign-partitions are given. No I/O.

All are an object with ``"partitions"``, a list of objects with ``"topic"``, ``"partition"`` and what the command wants
besides, and often ``"version": 1``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.client.types import TopicPartition
from headrace.tools.shared.commands import UsageError, has_room

#: How many bits a number has in the protocol; others have 64.
_BITS = {"partition": 32}


def entries(
    content: object, name: str, *, wanted: Mapping[str, type] | None = None
) -> list[tuple[TopicPartition, Any]]:
    """The partitions of a file, each with the object that it stands in.

    :param name: of the file, for complaints.
    :param wanted: fields that each object must have besides topic and partition.
    """
    if not isinstance(content, dict):
        raise UsageError(f"{name}: an object is wanted")
    check_version(content, name)
    items = content.get("partitions")
    if not isinstance(items, list):
        raise UsageError(f"{name}: Missing partitions field")
    found = list(_entries(items, name, {"topic": str, "partition": int, **(wanted or {})}))
    doubled = [partition for partition, times in Counter(partition for partition, _ in found).items() if times > 1]
    if doubled:
        raise UsageError(f"{name} contains duplicate topic partitions: {','.join(map(str, doubled))}")
    return found


def check_version(content: Mapping[str, object], name: str) -> None:
    version = content.get("version", 1)
    if version != 1:
        raise UsageError(f"{name}: Not supported version field value {version}")


def _entries(items: list[object], name: str, wanted: Mapping[str, type]) -> Iterator[tuple[TopicPartition, Any]]:
    for item in items:
        if not isinstance(item, dict):
            raise UsageError(f"{name}: a partition is {item!r}, an object is wanted")
        for key, kind in wanted.items():
            if not isinstance(item.get(key), kind) or isinstance(item[key], bool):
                raise UsageError(f'{name}: "{key}" of {item!r} is missing or of the wrong kind')
            if kind is int and not has_room(item[key], _BITS.get(key, 64)):
                raise UsageError(f'{name}: "{key}" of {item!r} is too large a number')
        yield TopicPartition(item["topic"], item["partition"]), item
