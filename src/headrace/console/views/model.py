"""Holds what pages show of a project of views. A number that is not known is None."""

from __future__ import annotations

from dataclasses import dataclass

#: The path of the page of a view.
VIEW_PATH = "/views/{view}"


@dataclass(frozen=True)
class PartitionOffset:
    """An offset of a partition of a topic."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class RowsAsOf:
    """The version that the rows of a view come from, and the offsets up to which they count."""

    view: str
    version: int
    offsets: tuple[PartitionOffset, ...]
    updated_ms: int
    age_ms: int


@dataclass(frozen=True)
class VersionCost:
    """The cost of a version in the last minutes.

    :ivar busy: the part of the time in which a micro-batch was in progress, from 0 to 1.
    """

    busy: float
    micro_batch_ms: float
    records_per_s: float
    cpu_cores: float | None


@dataclass(frozen=True)
class VersionRow:
    """A version of a view.

    :ivar wanted: what the runner should do with it: run, stop or drop.
    :ivar way: how the answer is kept up to date.
    :ivar behind: records that are not in the answer yet; None if the log does not answer.
    :ivar done: records that were read.
    :ivar age_ms: the time since the answer last had every record of the log.
    :ivar trouble: why it makes no progress; empty if nothing is wrong.
    :ivar own_offsets: why readers do not see it at the offsets of other views; empty if they do.
    """

    view: str
    version: int
    state: str
    serves: bool
    wanted: str
    architecture: str
    way: str
    way_meaning: str
    behind: int | None
    done: int | None
    total: int | None
    records_per_s: float | None
    left_ms: float | None
    events: int | None
    dead_letters: int | None
    dropped_late: int | None
    age_ms: int | None
    updated_ms: int | None
    trouble: str
    own_offsets: str
    cost: VersionCost | None
    schema_changes: tuple[str, ...]
    offsets: tuple[PartitionOffset, ...]

    @property
    def is_ready(self) -> bool:
        """Whether readers can be switched to it."""
        return self.state in ("caught_up", "standby")


@dataclass(frozen=True)
class SourceBox:
    """A source of the project, with the topics that it names."""

    name: str
    kind: str
    topics: tuple[str, ...]
    pattern: str


@dataclass(frozen=True)
class ViewRow:
    """A view of the project.

    :ivar reads: the sources and views that its query names.
    :ivar has_file: whether the project still has its file.
    :ivar serving: the version that readers see; None if none serves.
    """

    name: str
    architecture: str
    reads: tuple[str, ...]
    has_file: bool
    serving: VersionRow | None
    versions: tuple[VersionRow, ...]


@dataclass(frozen=True)
class Status:
    """The project at one moment.

    :ivar notes: how publishing and exporting go, and problems of the project's files.
    :ivar picture: the graph as SVG.
    """

    folder: str
    is_running: bool
    sources: tuple[SourceBox, ...]
    views: tuple[ViewRow, ...]
    notes: tuple[str, ...]
    picture: str


@dataclass(frozen=True)
class TextFile:
    """A text of a view's definition, as it was written when the version was made."""

    name: str
    text: str


@dataclass(frozen=True)
class VersionDefinition:
    """The definition of a version: what it reads, its key, and its texts."""

    version: int
    topics: tuple[str, ...]
    key: tuple[str, ...]
    dead_letter_topics: tuple[str, ...]
    texts: tuple[TextFile, ...]
    created_ms: int
    served_ms: int | None


@dataclass(frozen=True)
class Plan:
    """How a version is kept up to date, why, and what an event costs, as ``headrace views explain`` says it.

    :ivar lines: empty if the plan is not known.
    :ivar unknown: why the plan is not known; empty if it is.
    """

    version: int
    lines: tuple[str, ...]
    unknown: str


@dataclass(frozen=True)
class Table:
    """The rows of an answer.

    :ivar is_truncated: whether there are more rows.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    is_truncated: bool
    as_of: tuple[RowsAsOf, ...]


@dataclass(frozen=True)
class LogRecord:
    """A record of the log, cut to what a page shows."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    key: str
    value: str
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RecordView:
    """A view that reads the topic of a record.

    :ivar is_counted: whether the rows that readers see count the record, unless it is a dead letter.
    :ivar as_of: the offset up to which the rows count the record's partition; None if they count none of it.
    :ivar row_key: the key of the row with the fields of the record, as JSON; empty if there is none.
    :ivar row_problem: why there is no such row.
    """

    view: str
    version: int
    is_counted: bool
    as_of: int | None
    row_key: str
    row_problem: str
