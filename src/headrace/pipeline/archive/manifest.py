"""What an archive has of a topic: a row of manifests, of which each adds some offsets. No I/O, no Spark.

::

    {"number": 3, "topic": "clicks", "topic_id": "0b6f...",
     "ranges": {"0": [1200, 1800], "1": [1180, 1790]},                    what it adds: from, up to but without
     "files": [{"path": "topic=clicks/day=2026-11-16/0000000003-9f2c-00000.parquet", "rows": 1150,
                "ranges": {"0": [1200, 1799], "1": [1180, 1790]}}]}       what each file has, at most

The manifests of a topic are numbered from 1 without gaps, and each goes on where the ones before it ended, so together
they cover, of each partition, one range without a hole. Not every offset has a record: markers of transactions and what
compaction took are covered too.

A file's name begins with the number of its manifest. Whoever finds a file whose manifest is there and does not list it
knows that nobody will ever want it: see :meth:`History.is_orphan`.
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
    """Manifests that do not go together, or cannot be read."""


@dataclass(frozen=True)
class ArchivedFile:
    """:param path: below the archive's folder."""

    path: str
    rows: int
    ranges: Ranges

    def overlaps(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> bool:
        return any(
            first < ends.get(at, first) and next_ > starts.get(at, first) for at, (first, next_) in self.ranges.items()
        )

    def crosses(self, partition: int, start: int, end: int) -> bool:
        """Whether it has offsets of the partition that lie outside."""
        first, next_ = self.ranges.get(partition, (start, end))
        return first < start or next_ > end


@dataclass(frozen=True)
class Manifest:
    number: int
    topic: str
    topic_id: str | None
    ranges: Ranges
    files: tuple[ArchivedFile, ...]

    def to_json(self) -> str:
        files = [{"path": one.path, "rows": one.rows, "ranges": _texts(one.ranges)} for one in self.files]
        values = {
            "number": self.number,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "ranges": _texts(self.ranges),
            "files": files,
        }
        return json.dumps(values, indent=1)

    @classmethod
    def from_json(cls, text: str, name: str) -> Manifest:
        """
        :raises ArchiveDamaged: if it is none.
        """
        try:
            found: dict[str, Any] = json.loads(text)
            files = [ArchivedFile(one["path"], one["rows"], _numbers(one["ranges"])) for one in found["files"]]
            return cls(found["number"], found["topic"], found["topic_id"], _numbers(found["ranges"]), tuple(files))
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveDamaged(f"{name} in the archive is no manifest: {type(error).__name__}: {error}") from error


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
    """All manifests of a topic, as far as they were read."""

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
        """Of each partition the first offset that is there."""
        return {at: first for one in reversed(self.manifests) for at, (first, _) in one.ranges.items()}

    @cached_property
    def ends(self) -> dict[int, int]:
        """Of each partition the offset after the last."""
        return {at: next_ for one in self.manifests for at, (_, next_) in one.ranges.items()}

    @cached_property
    def rows(self) -> int:
        return sum(file.rows for one in self.manifests for file in one.files)

    def followed_by(self, manifest: Manifest) -> History:
        """
        :raises ArchiveDamaged: if it does not go on where this ends.
        """
        what = f"manifest {manifest.number} of {self.topic} in the archive"
        if (manifest.number, manifest.topic) != (self.last_number + 1, self.topic):
            raise ArchiveDamaged(f"{what} follows number {self.last_number}: there is one missing, or it was renamed")
        for at, (first, _) in manifest.ranges.items():
            end = self.ends.get(at, first)
            if first != end:
                raise ArchiveDamaged(f"{what} begins at offset {first} of partition {at}, not at {end}")
        return replace(self, manifests=(*self.manifests, manifest))

    def files(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[ArchivedFile]:
        """Those that may have records between; a partition that ``ends`` does not name is not wanted."""
        return [file for one in self.manifests for file in one.files if file.overlaps(starts, ends)]

    def is_orphan(self, path: str) -> bool:
        """Whether a file, or a folder of files under way, was left behind by one that lost or died.

        A manifest that is not there yet may still come, so what would belong to it is let alone.
        """
        found = _NUMBERED.match(path.rpartition("/")[2])
        number = int(found[1]) if found else 0
        return 1 <= number <= self.last_number and path not in self._paths(number)

    def _paths(self, number: int) -> set[str]:
        return {file.path for file in self.manifests[number - 1].files}
