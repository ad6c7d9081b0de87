"""What a view is: everything that its answer depends on, in one frozen value.

It carries the texts of its query, schema and functions, not only their file names: a version that runs goes on as it
was when it was applied, whatever happens to the files. So it is what the catalog keeps (``as_dict``, ``from_dict``).
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

    :raises ValueError: if it is none.
    """
    total_ms, rest = 0, text.strip().lower()
    if not re.fullmatch(r"(\d+\s*[a-z]+\s*)+", rest):
        raise ValueError(f"{text!r} is no duration: say it as '10 minutes' or '500 ms'")
    for number, unit in re.findall(r"(\d+)\s*([a-z]+)", rest):
        known = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
        if known is None:
            raise ValueError(f"{text!r} is no duration: {unit!r} is none of ms, seconds, minutes, hours, days")
        total_ms += int(number) * known
    return total_ms


@dataclass(frozen=True)
class Source:
    """A text that was in a file: SQL, Python or a schema.

    :param file: for messages; relative to the project's folder.
    :param function: which one, if it is Python.
    """

    file: str
    text: str
    function: str = ""

    @property
    def is_python(self) -> bool:
        return bool(self.function)

    @property
    def essence(self) -> str:
        """What of it matters: not how lines end, nor blank lines around it."""
        return "\n".join(line.rstrip() for line in self.text.strip().splitlines()) + f"\n{self.function}"


@dataclass(frozen=True)
class Decode:
    """How a record's bytes become columns.

    :param schema: columns in Spark's words (``user STRING, ms BIGINT``), or an Avro schema in JSON.
    :param options: of Spark's readers for JSON and CSV.
    :param framing: what is in front of an Avro value; ``confluent`` are five bytes that say which schema.
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
    """:param caught_up_within: records behind the log's end at which a new version counts as caught up."""

    start: str = "earliest"
    switch: str = "auto"
    caught_up_within: int = 1000


@dataclass(frozen=True)
class LambdaSettings:
    """:param batch_every_ms: 0 if batches run by hand only."""

    batch_every_ms: int = 3_600_000
    trigger_ms: int = 200


@dataclass(frozen=True)
class ViewDefinition:
    """
    :param topics: what it reads; empty if ``pattern`` says it.
    :param key: the output columns that make up a row's key; empty for those that the query groups by.
    :param lines: where its file says what, for messages; not kept in the catalog.
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
        """The same for definitions with the same answer: it says whether a new version is needed.

        Where bad records go, how often something runs and when to switch do not matter.
        """
        function = self.decode.function
        essence = [
            sorted(self.topics), self.pattern, self.architecture, self.query.essence, list(self.key),
            self.decode.format, " ".join(self.decode.schema.split()), self.decode.options, self.decode.framing,
            function.essence if function else "", asdict(self.watermark) if self.watermark else None,
            self.kappa.start if self.architecture == "kappa" else "",
        ]  # fmt: skip
        if len(self.topics) > 1 and not self.query.is_python:
            # Versions that were made when each topic's name stood for all topics have other answers.
            essence.append("a topic's name means its own records")
        return hashlib.sha256(json.dumps(essence, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def which_topics(self) -> dict[str, str]:
        """As an option of the source."""
        return {"subscribe": ",".join(self.topics)} if self.topics else {"subscribePattern": self.pattern}

    def line(self, *path: str) -> int | None:
        """Of a field in the view's file, or of the table that it is missing from."""
        places = (self.lines.get(path[:count]) for count in range(len(path), 0, -1))
        return next((line for line in places if line is not None), None)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
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
