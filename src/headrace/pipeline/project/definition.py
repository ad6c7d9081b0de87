"""The definition of a view: everything that its answer depends on, in one frozen value.

A definition contains the texts of its query, schema and functions, not only the names of their files. So a running
version does not change when the files change. The catalog stores definitions (``as_dict``, ``from_dict``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ARCHITECTURES = ("lambda", "kappa")
FORMATS = ("json", "csv", "raw", "avro", "python")
FRAMINGS = ("none", "confluent")
SWITCHES = ("auto", "manual")

_UNITS_MS = {
    "ms": 1, "millisecond": 1, "second": 1000, "s": 1000, "minute": 60_000, "min": 60_000, "m": 60_000,
    "hour": 3_600_000, "h": 3_600_000, "day": 86_400_000, "d": 86_400_000,
}  # fmt: skip


def duration_ms(text: str) -> int:
    """``10 minutes``, ``1 hour 30 minutes``, ``500 ms``.

    :raises ValueError: if the text is not a duration.
    """
    total_ms, rest = 0, text.strip().lower()
    if not re.fullmatch(r"(\d+\s*[a-z]+\s*)+", rest):
        raise ValueError(f"{text!r} is not a duration: write it as '10 minutes' or '500 ms'")
    for number, unit in re.findall(r"(\d+)\s*([a-z]+)", rest):
        known = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
        if known is None:
            raise ValueError(f"{text!r} is not a duration: {unit!r} is none of ms, seconds, minutes, hours, days")
        total_ms += int(number) * known
    return total_ms


@dataclass(frozen=True)
class Source:
    """The text of a file: SQL, Python or a schema.

    :param file: the name of the file, relative to the folder of the project, for messages.
    :param function: the name of the function, if it is Python.
    """

    file: str
    text: str
    function: str = ""

    @property
    def is_python(self) -> bool:
        return bool(self.function)

    @property
    def essence(self) -> str:
        """The text without differences that do not matter: line ends, trailing spaces, blank lines at both ends."""
        return "\n".join(line.rstrip() for line in self.text.strip().splitlines()) + f"\n{self.function}"


@dataclass(frozen=True)
class Decode:
    """How a record's bytes become columns.

    :param schema: columns as Spark writes them (``user STRING, ms BIGINT``), or an Avro schema in JSON.
    :param options: options of Spark's readers for JSON and CSV.
    :param framing: what precedes an Avro value; ``confluent`` means five bytes with the id of the schema.
    """

    format: str = "json"
    schema: str = ""
    options: dict[str, str] = field(default_factory=dict)
    function: Source | None = None
    framing: str = "none"


@dataclass(frozen=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True)
class KappaSettings:
    """:param caught_up_within: a new version has caught up when its lag is at most this many records."""

    start: str = "earliest"
    switch: str = "auto"
    caught_up_within: int = 1000


@dataclass(frozen=True)
class LambdaSettings:
    """:param batch_every_ms: 0 if batches run only on request."""

    batch_every_ms: int = 3_600_000
    trigger_ms: int = 200


@dataclass(frozen=True)
class ViewDefinition:
    """
    :param topics: the topics that the view reads; empty if ``pattern`` is set.
    :param key: the output columns that form the key of a row; empty for the columns that the query groups by.
    :param lines: the line of each field in the view's file, for messages; not stored in the catalog.
    """

    name: str
    topics: tuple[str, ...]
    pattern: str
    architecture: str
    query: Source
    decode: Decode
    key: tuple[str, ...] = ()
    dead_letters: str = ""
    watermark: Watermark | None = None
    kappa: KappaSettings = KappaSettings()
    lambda_: LambdaSettings = LambdaSettings()
    file: Path = Path()
    lines: dict[tuple[str, ...], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def definition_hash(self) -> str:
        """Equal for definitions with the same answer. If it differs, a new version is needed.

        The dead-letter topic, the schedule and the switch do not matter.
        """
        function = self.decode.function
        essence = [
            sorted(self.topics), self.pattern, self.architecture, self.query.essence, list(self.key),
            self.decode.format, " ".join(self.decode.schema.split()), self.decode.options, self.decode.framing,
            function.essence if function else "", asdict(self.watermark) if self.watermark else None,
            self.kappa.start if self.architecture == "kappa" else "",
        ]  # fmt: skip
        if len(self.topics) > 1 and not self.query.is_python:
            # In earlier versions of Headrace the name of each topic meant all topics, so their answers differ.
            essence.append("a topic's name means its own records")
        return hashlib.sha256(json.dumps(essence, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def which_topics(self) -> dict[str, str]:
        """The option of the source that selects the topics."""
        return {"subscribe": ",".join(self.topics)} if self.topics else {"subscribePattern": self.pattern}

    def line(self, *path: str) -> int | None:
        """The line of a field in the view's file, or of the table that lacks the field."""
        places = (self.lines.get(path[:count]) for count in range(len(path), 0, -1))
        return next((line for line in places if line is not None), None)

    def as_dict(self) -> dict[str, object]:
        """The definition as JSON values."""
        values = asdict(self)
        del values["lines"]
        return values | {"file": str(self.file)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ViewDefinition:
        decode, watermark = dict(values["decode"]), values["watermark"]
        decode["function"] = Source(**decode["function"]) if decode["function"] else None
        return cls(
            name=values["name"],
            topics=tuple(values["topics"]),
            pattern=values["pattern"],
            architecture=values["architecture"],
            query=Source(**values["query"]),
            decode=Decode(**decode),
            key=tuple(values["key"]),
            dead_letters=values["dead_letters"],
            watermark=Watermark(**watermark) if watermark else None,
            kappa=KappaSettings(**values["kappa"]),
            lambda_=LambdaSettings(**values["lambda_"]),
            file=Path(values["file"]),
        )
