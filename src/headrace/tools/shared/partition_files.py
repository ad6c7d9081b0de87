"""Reads the JSON files of partitions for delete-records, leader-election and reassign-partitions. No I/O.

Each file is an object with ``"partitions"``: a list of objects with ``"topic"``, ``"partition"`` and the fields of the
command. Most files have ``"version": 1``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.client.types import TopicPartition
from headrace.tools.shared.commands import UsageError, has_room

#: The bits of a number in the protocol; other numbers have 64.
_BITS = {"partition": 32}


def entries(
    content: object, name: str, *, wanted: Mapping[str, type] | None = None
) -> list[tuple[TopicPartition, Any]]:
    """The partitions of a file, each with its object.

    :param name: the name of the file, for errors.
    :param wanted: the fields that each object must have in addition to topic and partition.
    """
    if not isinstance(content, dict):
        raise UsageError(f"{name}: the file must be a JSON object")
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
            raise UsageError(f"{name}: a partition is {item!r}, but must be an object")
        for key, kind in wanted.items():
            if not isinstance(item.get(key), kind) or isinstance(item[key], bool):
                raise UsageError(f'{name}: "{key}" of {item!r} is missing or has the wrong type')
            if kind is int and not has_room(item[key], _BITS.get(key, 64)):
                raise UsageError(f'{name}: "{key}" of {item!r} is too large a number')
        yield TopicPartition(item["topic"], item["partition"]), item
