"""The definition of a source: it gives rows to queries under a name in FROM.

======== ===========================================================================================================
kind     the rows at a prefix of the topics
======== ===========================================================================================================
events   every record that decodes
table    the newest record of each key; a record without a value removes the row of its key (compacted topics)
changes  the rows of a table in another database, from its changes in Debezium's envelope
======== ===========================================================================================================

The key of a table is the bytes of the record's key. The newest record of a key within a partition is the one with the
largest offset. If a key is in several partitions, the newest of these records by (timestamp, topic, partition) counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace.pipeline.project.decode import Decode

#: The name of a view's own records in FROM.
EVENTS = "events"
KINDS = (EVENTS, "table", "changes")


@dataclass(frozen=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True)
class SourceDefinition:
    """
    :param topics: the topics that the source reads; empty if ``pattern`` is set.
    :param file: the file that defines the source, relative to the folder of the project.
    :param lines: the line of each field in the file, for messages; not stored in the catalog.
    """

    name: str
    kind: str
    topics: tuple[str, ...]
    pattern: str
    decode: Decode
    watermark: Watermark | None = None
    dead_letters: str = ""
    file: Path = Path()
    lines: dict[tuple[str, ...], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_table(self) -> bool:
        """Whether a later record can replace or remove a row."""
        return self.kind != EVENTS

    @property
    def essence(self) -> dict[str, object]:
        """The values that the rows depend on, as JSON values."""
        return {
            "name": self.name.lower(),
            "kind": self.kind,
            "topics": sorted(self.topics),
            "pattern": self.pattern,
            "decode": self.decode.essence,
            "watermark": asdict(self.watermark) if self.watermark else None,
        }

    @property
    def which_topics(self) -> dict[str, str]:
        """The option of Spark's source that selects the topics."""
        return {"subscribe": ",".join(self.topics)} if self.topics else {"subscribePattern": self.pattern}

    def reads(self, topic: str) -> bool:
        return topic in self.topics or bool(self.pattern and re.fullmatch(self.pattern, topic))

    def line(self, *path: str) -> int | None:
        """The line of a field in the file, or of the table that lacks the field."""
        return line_of(self.lines, path)

    def as_dict(self) -> dict[str, object]:
        """The definition as JSON values."""
        values = asdict(self)
        del values["lines"]
        return values | {"file": str(self.file)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SourceDefinition:
        watermark = values["watermark"]
        return cls(
            name=values["name"],
            kind=values["kind"],
            topics=tuple(values["topics"]),
            pattern=values["pattern"],
            decode=Decode.from_dict(values["decode"]),
            watermark=Watermark(**watermark) if watermark else None,
            dead_letters=values["dead_letters"],
            file=Path(values["file"]),
        )


def line_of(lines: Mapping[tuple[str, ...], int], path: tuple[str, ...]) -> int | None:
    """The line of a field, or of the table that lacks the field."""
    places = (lines.get(path[:count]) for count in range(len(path), 0, -1))
    return next((line for line in places if line is not None), None)
