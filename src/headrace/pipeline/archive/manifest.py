"""The manifests of an archive: each lists the offsets and files that one append has added. Does no I/O.

::

    {"number": 3, "topic": "clicks", "topic_id": "0b6f...",
     "ranges": {"0": [1200, 1800], "1": [1180, 1790]},                    what it adds: first offset, end (exclusive)
     "files": [{"path": "topic=clicks/day=2026-11-16/0000000003-9f2c-00000.parquet", "rows": 1150,
                "ranges": {"0": [1200, 1799], "1": [1180, 1790]}}]}       the range of each file

A manifest of a compaction adds no offsets. It lists files that replace others (``compaction``). It has no key "files",
so that versions of Headrace that cannot read it raise an error instead of reading records twice::

    {"number": 9, "topic": "clicks", "topic_id": "0b6f...",
     "compacted": {"at_ms": 1763400000000, "replaces": [path, ...],
                   "files": [{"path": ..., "rows": 9200, "ranges": ...}]}}

The manifests of a topic are numbered from 1 without gaps. Each begins where the ones before it ended, so together they
cover one range of each partition without a gap. Not every offset has a record: markers of transactions, and records
that compaction has removed, are covered too.

The name of a file begins with the number of its manifest. If that manifest exists and does not list the file, the file
will never be used: see :meth:`History.is_orphan`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headrace.pipeline.progress.data_loss import DataLost

#: By partition: the first offset, and the one after the last.
Ranges = dict[int, tuple[int, int]]
_NUMBERED = re.compile(r"(\d{10})-[0-9a-f]+(-\d+\.parquet)?")


class ArchiveDamaged(DataLost):
    """The manifests do not fit together, or cannot be read."""


@dataclass(frozen=True)
class ArchivedFile:
    """:param path: relative to the folder of the archive."""

    path: str
    rows: int
    ranges: Ranges

    def overlaps(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> bool:
        return any(
            first < ends.get(at, first) and next_ > starts.get(at, first) for at, (first, next_) in self.ranges.items()
        )

    def crosses(self, partition: int, start: int, end: int) -> bool:
        """Whether the file has offsets of the partition outside of the range."""
        first, next_ = self.ranges.get(partition, (start, end))
        return first < start or next_ > end


@dataclass(frozen=True)
class Manifest:
    """
    :param replaces: the paths of files that no longer count, for a compaction.
    :param at_ms: when they were replaced.
    """

    number: int
    topic: str
    topic_id: str | None
    ranges: Ranges
    files: tuple[ArchivedFile, ...]
    replaces: tuple[str, ...] = ()
    at_ms: int = 0

    def to_json(self) -> str:
        files = [{"path": one.path, "rows": one.rows, "ranges": _texts(one.ranges)} for one in self.files]
        values: dict[str, Any] = {"number": self.number, "topic": self.topic, "topic_id": self.topic_id}
        if self.replaces:
            values["compacted"] = {"at_ms": self.at_ms, "files": files, "replaces": list(self.replaces)}
        else:
            values |= {"ranges": _texts(self.ranges), "files": files}
        return json.dumps(values, indent=1)

    @classmethod
    def from_json(cls, text: str, name: str) -> Manifest:
        """
        :raises ArchiveDamaged: if the text is not a manifest.
        """
        try:
            found: dict[str, Any] = json.loads(text)
            names = found["number"], found["topic"], found["topic_id"]
            if (made := found.get("compacted")) is not None:
                return cls(*names, {}, _files(made["files"]), tuple(made["replaces"]), made["at_ms"])
            return cls(*names, _numbers(found["ranges"]), _files(found["files"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveDamaged(
                f"{name} in the archive is not a manifest ({type(error).__name__}: {error}); restore it from a backup"
            ) from error


def _files(listed: list[dict[str, Any]]) -> tuple[ArchivedFile, ...]:
    return tuple(ArchivedFile(one["path"], one["rows"], _numbers(one["ranges"])) for one in listed)


def _texts(ranges: Ranges) -> dict[str, list[int]]:
    return {str(at): list(ranges[at]) for at in sorted(ranges)}


def _numbers(ranges: Mapping[str, tuple[int, int]]) -> Ranges:
    return {int(at): (first, next_) for at, (first, next_) in ranges.items()}


def manifest_name(number: int) -> str:
    return f"{number:010d}.json"


def is_manifest_name(name: str) -> bool:
    return re.fullmatch(r"\d{10}\.json", name) is not None


@dataclass(frozen=True)
class History:
    """The manifests of a topic that were read so far."""

    topic: str
    manifests: tuple[Manifest, ...] = ()

    @property
    def last_number(self) -> int:
        return self.manifests[-1].number if self.manifests else 0

    @property
    def topic_id(self) -> str | None:
        return self.manifests[-1].topic_id if self.manifests else None

    @cached_property
    def starts(self) -> dict[int, int]:
        """For each partition, the first offset."""
        return {at: first for one in reversed(self.manifests) for at, (first, _) in one.ranges.items()}

    @cached_property
    def ends(self) -> dict[int, int]:
        """For each partition, the offset after the last one."""
        return {at: next_ for one in self.manifests for at, (_, next_) in one.ranges.items()}

    def followed_by(self, manifest: Manifest) -> History:
        """
        :raises ArchiveDamaged: if the manifest does not begin where the last one ended.
        """
        what = f"manifest {manifest.number} of {self.topic} in the archive"
        if (manifest.number, manifest.topic) != (self.last_number + 1, self.topic):
            raise ArchiveDamaged(
                f"{what} follows number {self.last_number}: one is missing or was renamed; restore it from a backup"
            )
        for at, (first, _) in manifest.ranges.items():
            end = self.ends.get(at, first)
            if first != end:
                raise ArchiveDamaged(
                    f"{what} begins at offset {first} of partition {at}, not at {end}; restore the missing one"
                )
        if unknown := [path for path in manifest.replaces if path not in self.live_paths]:
            raise ArchiveDamaged(f"{what} replaces {unknown[0]}, which no manifest lists; restore it from a backup")
        return replace(self, manifests=(*self.manifests, manifest))

    def files(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[ArchivedFile]:
        """The files that may have records in the ranges. A partition that is not in ``ends`` is left out."""
        return [file for file in self.live_files if file.overlaps(starts, ends)]

    @cached_property
    def replaced(self) -> dict[str, int]:
        """The files that no longer count, and when they were replaced."""
        return {path: one.at_ms for one in self.manifests for path in one.replaces}

    @cached_property
    def live_files(self) -> tuple[ArchivedFile, ...]:
        """The files that count."""
        return tuple(file for one in self.manifests for file in one.files if file.path not in self.replaced)

    @cached_property
    def live_paths(self) -> frozenset[str]:
        return frozenset(file.path for file in self.live_files)

    def is_orphan(self, path: str) -> bool:
        """Whether a file or a staging folder was left by a process that crashed or was slower than another one.

        A manifest that does not exist yet may still be created, so its files are no orphans.
        """
        found = _NUMBERED.match(path.rpartition("/")[2])
        number = int(found[1]) if found else 0
        return 1 <= number <= self.last_number and path not in self._paths(number)

    def _paths(self, number: int) -> set[str]:
        return {file.path for file in self.manifests[number - 1].files}
