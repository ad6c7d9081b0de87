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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.source_definition import EVENTS, SourceDefinition, Watermark, line_of
from headrace.pipeline.project.views_on_views.upstream import UpstreamView

ARCHITECTURES = ("lambda", "kappa")
SWITCHES = ("auto", "manual")
#: How the answer of a view is kept up to date; see ``ViewDefinition.maintain``.
WAYS_TO_MAINTAIN = ("combine", "stream", "touched", "whole")
PUBLISH_FORMATS = ("json", "avro")

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


def start_ms(text: str) -> int:
    """``2026-11-16T08:00:00Z`` in milliseconds. A time without a time zone is in UTC."""
    at = datetime.fromisoformat(text)
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(frozen=True)
class KappaSettings:
    """
    :param caught_up_within: a new version has caught up when its lag is at most this many records.
    :param trigger_ms: how often a version looks for new records, if its micro-batches do not take longer.
    :param batch_every_ms: how often a whole answer is computed; 0 if only on request. Other ways do not use it.
    """

    start: str = "earliest"
    switch: str = "auto"
    caught_up_within: int = 1000
    trigger_ms: int = 500
    batch_every_ms: int = 3_600_000


@dataclass(frozen=True)
class LambdaSettings:
    """:param batch_every_ms: 0 if batches run only on request."""

    batch_every_ms: int = 3_600_000
    trigger_ms: int = 200


@dataclass(frozen=True)
class Keep:
    """Rows and state whose time in ``column`` is older than ``duration`` are dropped."""

    column: str
    duration: str


@dataclass(frozen=True)
class Publish:
    """The topic that gets every change of a view.

    :param format: of keys and values; one of ``PUBLISH_FORMATS``.
    :param registry: the schema registry for ``avro``.
    :param registry_options: how the registry is reached, such as ``ssl.ca.location``. A login is a reference to a
        secret.
    """

    topic: str
    format: str = "json"
    registry: str = ""
    registry_options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Export:
    """The folder with the view as a Delta table.

    :param path: of the folder; relative to the folder of the project, or absolute.
    :param every_ms: the time between two snapshots, at least.
    :param keep_hours: for how long the files of a replaced snapshot stay.
    """

    path: str
    every_ms: int = 60_000
    keep_hours: int = 1


@dataclass(frozen=True)
class ChangeSettings:
    """How the changes of a view are kept for those who follow the view.

    :param always: whether the view is followed although nobody reads its changes.
    :param keep_changes: how many changes the outbox keeps at most.
    :param keep_ms: for how long it keeps them.
    """

    always: bool = False
    keep_changes: int = 100_000
    keep_ms: int = 3_600_000


@dataclass(frozen=True)
class ViewDefinition:
    """
    A view has rows of its own (topics or pattern, and decode), or sources. A view of one source of kind ``events`` has
    the source's topics and decoding as its own, and ``source_name``. All other views over sources have ``sources``,
    and no topics of their own.

    :param topics: the topics that the view reads; empty if ``pattern`` or ``sources`` is set.
    :param key: the output columns that form the key of a row; empty for the columns that the query groups by.
    :param sources: the sources that the query names. The view's own records, if it has some, are one of them, named
        ``events``.
    :param source_name: the name of the source that topics and decoding come from, which is a table name of the query.
    :param source_file: the file of this source.
    :param maintain: how the answer is kept up to date; empty to choose the cheapest way that is exact.
    :param views: the views that the query reads, directly or through others; each after those that it reads itself.
        Topics, or ``sources``, are then those of the query and of all these views.
    :param reads_directly: of a query that names views, the names of the sources and views that it reads itself, in the
        order of the arguments of a Python function.
    :param lines: the line of each field in the view's file, for messages; not stored in the catalog.
    :param source_lines: the same for ``source_file``.
    """

    name: str
    topics: tuple[str, ...]
    pattern: str
    architecture: str
    query: FileText
    decode: Decode
    key: tuple[str, ...] = ()
    dead_letters: str = ""
    watermark: Watermark | None = None
    kappa: KappaSettings = KappaSettings()
    lambda_: LambdaSettings = LambdaSettings()
    sources: tuple[SourceDefinition, ...] = ()
    source_name: str = ""
    source_file: Path = Path()
    maintain: str = ""
    keep: Keep | None = None
    views: tuple[UpstreamView, ...] = ()
    reads_directly: tuple[str, ...] = ()
    publish: Publish | None = None
    changes: ChangeSettings = ChangeSettings()
    export: Export | None = None
    file: Path = Path()
    lines: dict[tuple[str, ...], int] = field(default_factory=dict, compare=False, repr=False)
    source_lines: dict[tuple[str, ...], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def definition_hash(self) -> str:
        """Equal for definitions with the same answer. If it differs, a new version is needed.

        The dead-letter topic, the schedule, the switch, [publish], [changes] and [export] do not matter. A field that
        is newer than the first release counts only if it is set, so that a view that does not use it keeps its hash.
        """
        decode = self.decode.essence
        essence = [
            sorted(self.topics), self.pattern, self.architecture, self.query.essence, list(self.key),
            *decode[:5], asdict(self.watermark) if self.watermark else None,
            self.kappa.start if self.architecture == "kappa" else "", *decode[5:],
        ]  # fmt: skip
        if len(self.topics) > 1 and not self.query.is_python:
            # In earlier versions of Headrace the name of each topic meant all topics, so their answers differ.
            essence.append("a topic's name means its own records")
        newer = {
            "sources": self._essence_of_sources(),
            "source_name": self.source_name.lower(),
            "maintain": self.maintain,
            "keep": asdict(self.keep) if self.keep else None,
            "views": self._essence_of_views(),
        }
        essence += [{name: value} for name, value in newer.items() if value]
        return hashlib.sha256(json.dumps(essence, sort_keys=True).encode()).hexdigest()[:16]

    def _essence_of_sources(self) -> list[dict[str, object]]:
        """In the order of a function's arguments; for SQL, the order does not matter."""
        made = [source.essence for source in self.sources]
        return made if self.query.is_python else sorted(made, key=lambda each: str(each["name"]))

    def _essence_of_views(self) -> list[object]:
        named = [each for each in self.views if each.name in self.reads_directly]
        made: list[object] = [[each.name, each.answer_hash] for each in sorted(named, key=lambda each: each.name)]
        return [*made, list(self.reads_directly)] if self.views and self.query.is_python else made

    @property
    def answer_hash(self) -> str:
        """Equal for definitions whose queries give the same rows to views that read them.

        Architecture, key, maintain and [keep] do not matter: a query of another view does not depend on them.
        """
        start = self.kappa.start if self.architecture == "kappa" else "earliest"
        inputs = sorted((each.essence for each in self.inputs), key=lambda each: str(each["name"]))
        essence = [self.query.essence, start, inputs, self._essence_of_views()]
        return hashlib.sha256(json.dumps(essence, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def inputs(self) -> tuple[SourceDefinition, ...]:
        """All that the view reads: its sources, or its own records as a source named ``events``."""
        return self.sources or (self.own_source,)

    @property
    def own_source(self) -> SourceDefinition:
        """The view's own topics and decoding, as a source."""
        return SourceDefinition(
            name=self.source_name or EVENTS,
            kind=EVENTS,
            topics=self.topics,
            pattern=self.pattern,
            decode=self.decode,
            watermark=self.watermark,
            dead_letters=self.dead_letters,
            file=self.source_file if self.source_name else self.file,
            lines=self.source_lines if self.source_name else self.lines,
        )

    @property
    def batch_every_ms(self) -> int:
        """The time between builds from the start; 0 if they run only on request."""
        settings = self.lambda_ if self.architecture == "lambda" else self.kappa
        return settings.batch_every_ms

    @property
    def trigger_ms(self) -> int:
        """How often a version looks for new records."""
        settings = self.lambda_ if self.architecture == "lambda" else self.kappa
        return settings.trigger_ms

    @property
    def which_topics(self) -> dict[str, str]:
        """The option of the source that selects the topics."""
        assert not self.sources, "each source selects its own topics"
        return self.own_source.which_topics

    def reads(self, topic: str) -> bool:
        return any(source.reads(topic) for source in self.inputs)

    def line(self, *path: str) -> int | None:
        """The line of a field in the view's file, or of the table that lacks the field."""
        return line_of(self.lines, path)

    def as_dict(self) -> dict[str, object]:
        """The definition as JSON values."""
        values = asdict(self)
        del values["lines"], values["source_lines"]
        sources = [source.as_dict() for source in self.sources]
        values["answer_hash"] = self.answer_hash
        return values | {"file": str(self.file), "source_file": str(self.source_file), "sources": sources}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ViewDefinition:
        watermark, keep = values["watermark"], values.get("keep")
        return cls(
            name=values["name"],
            topics=tuple(values["topics"]),
            pattern=values["pattern"],
            architecture=values["architecture"],
            query=FileText(**values["query"]),
            decode=Decode.from_dict(values["decode"]),
            key=tuple(values["key"]),
            dead_letters=values["dead_letters"],
            watermark=Watermark(**watermark) if watermark else None,
            kappa=KappaSettings(**values["kappa"]),
            lambda_=LambdaSettings(**values["lambda_"]),
            sources=tuple(SourceDefinition.from_dict(each) for each in values.get("sources", ())),
            source_name=values.get("source_name", ""),
            source_file=Path(values.get("source_file", "")),
            maintain=values.get("maintain", ""),
            keep=Keep(**keep) if keep else None,
            views=tuple(UpstreamView.from_dict(each) for each in values.get("views", ())),
            reads_directly=tuple(values.get("reads_directly", ())),
            publish=Publish(**publish) if (publish := values.get("publish")) else None,
            changes=ChangeSettings(**values.get("changes", {})),
            export=Export(**export) if (export := values.get("export")) else None,
            file=Path(values["file"]),
        )
