"""The tables of the catalog, and the values that their rows become.

::

    headrace_views         name | the last version number, which version serves, which one served before
    headrace_versions      view, version | state, desired state (wanted), definition, data table, error, the SELECT of
                           the SQL view when the version serves, when it first served
    headrace_progress      view, version | the last batch, the offsets up to which the data counts, counters
    headrace_reports       view, version | what the runner observes about a running version: see :class:`Report`
    headrace_batches       view, version, batch | Lambda: each batch result, the cut up to which it counts, its table
    headrace_spans         view, version, span | Lambda: the ranges of offsets that the rows of the speed table cover
    headrace_dead_letters  view, version | the offsets up to which dead letters were sent
    headrace_schema_changes  view, version | how the records differ from the schemas of the version's sources
    headrace_java_deaths   view, version, work | how often Spark's Java process died during that kind of work
    headrace_requests      id | what a command asked the runner to do, and how that ended

Times are milliseconds since 1970. Definitions and offsets are JSON texts; offsets are the next ones to read:
``{"clicks": {"0": 1200, "1": 1180}}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import BigInteger, Column, Double, Identity, Integer, MetaData, Table, Text

from headrace.pipeline.serving.catalog_tables.version_states import DesiredState, VersionState

#: The name of a view and the number of a version.
VersionKey = tuple[str, int]
#: By topic and partition, the next offset to read.
Offsets = dict[str, dict[int, int]]

METADATA = MetaData()

VIEWS = Table(
    "headrace_views",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("architecture", Text, nullable=False),
    Column("definition_hash", Text, nullable=False),
    Column("last_version", Integer, nullable=False),
    Column("serving_version", Integer),
    Column("previous_version", Integer),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
)

VERSIONS = Table(
    "headrace_versions",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("wanted", Text, nullable=False),
    Column("definition", Text, nullable=False),
    Column("definition_hash", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("select_sql", Text),
    Column("served_ms", BigInteger),
    Column("error", Text),
    Column("due_ms", BigInteger),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
)

PROGRESS = Table(
    "headrace_progress",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("batch_id", BigInteger, nullable=False),
    Column("offsets", Text, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("dead_letters", BigInteger, nullable=False),
    Column("dropped_late", BigInteger, nullable=False),
    Column("topic_ids", Text, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
)

REPORTS = Table(
    "headrace_reports",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("complete_ms", BigInteger),
    Column("reading", BigInteger, nullable=False),
    Column("obstacle", Text),
    Column("updated_ms", BigInteger, nullable=False),
)

BATCHES = Table(
    "headrace_batches",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("batch", Integer, primary_key=True, autoincrement=False),
    Column("cut", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

SPANS = Table(
    "headrace_spans",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("span", BigInteger, primary_key=True, autoincrement=False),
    Column("first_offsets", Text, nullable=False),
    Column("next_offsets", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
)

DEAD_LETTERS = Table(
    "headrace_dead_letters",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("next_offsets", Text, nullable=False),
)

JAVA_DEATHS = Table(
    "headrace_java_deaths",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("work", Text, primary_key=True),
    Column("deaths", Integer, nullable=False),
    Column("said", Text, nullable=False),
)

COSTS = Table(
    "headrace_costs",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("busy", Double, nullable=False),
    Column("micro_batch_ms", Double, nullable=False),
    Column("records_per_s", Double, nullable=False),
    Column("cpu_cores", Double),
)

SCHEMA_CHANGES = Table(
    "headrace_schema_changes",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("changes", Text, nullable=False),
    Column("counts", Text, nullable=False),
)

#: The tables whose rows belong to one version and are deleted with it.
OF_VERSIONS = (VERSIONS, PROGRESS, REPORTS, BATCHES, SPANS, DEAD_LETTERS, JAVA_DEATHS, COSTS, SCHEMA_CHANGES)

REQUESTS = Table(
    "headrace_requests",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("view", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("done_ms", BigInteger),
    Column("error", Text),
)


@dataclass(frozen=True, slots=True)
class View:
    name: str
    architecture: str
    definition_hash: str
    last_version: int
    serving_version: int | None
    previous_version: int | None
    created_ms: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class Version:
    """
    :param select_sql: what the SQL view selects when this version serves; None before its tables exist.
    :param served_ms: when it first served; None if it never did.
    :param due_ms: when a version that failed is tried again; None if it is not tried again, or did not fail.
    """

    view: str
    version: int
    state: VersionState
    desired_state: DesiredState
    definition: dict[str, object]
    definition_hash: str
    table_name: str
    error: str | None
    created_ms: int
    updated_ms: int
    select_sql: str | None = None
    served_ms: int | None = None
    due_ms: int | None = None

    @property
    def key(self) -> VersionKey:
        return self.view, self.version

    @property
    def label(self) -> str:
        """``pages v2``."""
        return f"{self.view} v{self.version}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the data of a version counts, as of its last committed batch.

    :param topic_ids: the ids of the topics that were read. Another id means that a topic was deleted and created again.
    """

    view: str
    version: int
    batch_id: int
    offsets: Offsets
    events: int = 0
    dead_letters: int = 0
    dropped_late: int = 0
    updated_ms: int = 0
    topic_ids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """The observations of the runner about a version, apart from its data. A report may be a second old.

    :param complete_ms: the latest known time at which the answer contained every record that the log had then.
        None if no such time is known.
    :param reading: how many records the batch in progress has read and not committed.
    :param obstacle: why a version that has caught up does not serve, or the last error of a version that is tried
        again.
    """

    view: str
    version: int
    complete_ms: int | None = None
    reading: int = 0
    obstacle: str | None = None
    updated_ms: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    view: str
    version: int
    batch: int
    cut: Offsets
    table_name: str
    rows: int
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    view: str
    version: int
    span: int
    first_offsets: Offsets
    next_offsets: Offsets
    rows: int


@dataclass(frozen=True, slots=True)
class Request:
    id: int
    view: str
    kind: str
    detail: dict[str, object]
    created_ms: int
    done_ms: int | None
    error: str | None


def offsets_text(offsets: Mapping[str, Mapping[int, int] | Mapping[str, int]]) -> str:
    """The offsets as JSON, sorted. Partitions may be numbers, or texts as in JSON and Spark."""
    ordered = {
        topic: {str(partition): offset for partition, offset in sorted((int(at), o) for at, o in partitions.items())}
        for topic, partitions in ((topic, offsets[topic]) for topic in sorted(offsets))
    }
    return json.dumps(ordered)


def parse_offsets(text: str) -> Offsets:
    found: dict[str, dict[str, int]] = json.loads(text)
    return {topic: {int(at): offset for at, offset in partitions.items()} for topic, partitions in found.items()}
