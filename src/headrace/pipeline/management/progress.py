"""The progress of the versions of a project: compares the catalog with the ends of the log's partitions.

This works without a runner and without Spark. If the log does not answer, the numbers are missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.client.errors import HeadraceError
from headrace.pipeline.maintenance.ways import stored_way
from headrace.pipeline.management.opened import OpenProject
from headrace.pipeline.management.own_offsets import own_offsets
from headrace.pipeline.project.definition import ViewDefinition, start_ms
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog import Progress, Report, Version, VersionState
from headrace.pipeline.serving.catalog_tables.schema_changes import SchemaChange, SchemaChanges
from headrace.pipeline.serving.catalog_tables.version_costs import Cost, VersionCosts
from headrace.runtime.clock import SystemClock

if TYPE_CHECKING:
    from headrace.client.consumer.sync_consumer import Consumer
    from headrace.client.types import TopicPartition

_TIMEOUT_MS = 2_000
_AT_WORK = (VersionState.REPLAYING, VersionState.CAUGHT_UP, VersionState.SERVING, VersionState.STANDBY)


@dataclass(frozen=True)
class VersionProgress:
    """One version, at one moment.

    :param behind: records that are not in the answer yet; None if the log does not answer.
    :param total: all records of the log.
    :param cost: what the version has cost lately; None if it does not run.
    :param schema_changes: how the newest records differ from the schemas of the version's sources.
    :param own_offsets: why readers do not see it at the same offsets as other views of its topics.
    """

    version: Version
    serves: bool
    committed: Progress | None
    behind: int | None
    total: int | None
    report: Report
    per_s: float | None = None
    cost: Cost | None = None
    schema_changes: tuple[SchemaChange, ...] = ()
    own_offsets: str | None = None

    @property
    def reading(self) -> int:
        """The records that the current batch has read and that are not in the answer yet."""
        is_at_it = self.version.state in (VersionState.STARTING, VersionState.REPLAYING)
        return min(self.report.reading, self.behind or 0) if is_at_it else 0

    @property
    def done(self) -> int | None:
        """The records that were read, committed or not."""
        return None if self.behind is None or self.total is None else self.total - self.behind + self.reading

    @property
    def seconds_left(self) -> float | None:
        return (self.behind - self.reading) / self.per_s if self.behind is not None and self.per_s else None

    @property
    def complete_ms(self) -> int | None:
        """The time at which the answer was last complete.

        If a serving version was never complete: when the answer was last written.
        """
        if self.report.complete_ms is None and self.serves and self.committed is not None:
            return self.committed.updated_ms
        return self.report.complete_ms

    def age_ms(self, now_ms: int) -> int | None:
        """The age that ``headrace query`` shows."""
        return None if self.complete_ms is None else max(0, now_ms - self.complete_ms)

    @property
    def trouble(self) -> str | None:
        """Why the version makes no progress: the rest of a sentence that begins with ``pages v2``."""
        version = self.version
        if version.state is VersionState.FAILED:
            again = "" if version.due_ms is None else ", and will be tried again"
            return f"failed{again}: {version.error}"
        return self.report.obstacle

    def value(self) -> dict[str, object]:
        version, progress = self.version, self.committed
        return {
            "view": version.view,
            "version": version.version,
            "architecture": version.definition["architecture"],
            "way": stored_way(version.definition),
            "state": version.state,
            "serves": self.serves,
            "wanted": version.desired_state,
            "error": version.error,
            "retry_ms": version.due_ms,
            "obstacle": self.report.obstacle,
            "records_behind": self.behind,
            "records_reading": self.reading,
            "records_total": self.total,
            "records_per_s": None if self.per_s is None else round(self.per_s, 1),
            "seconds_left": None if self.seconds_left is None else round(self.seconds_left, 1),
            "batch_id": progress and progress.batch_id,
            "offsets": progress and progress.offsets,
            "own_offsets": self.own_offsets,
            "events": progress.events if progress else 0,
            "dead_letters": progress.dead_letters if progress else 0,
            "dropped_late": progress.dropped_late if progress else 0,
            "updated_ms": progress and progress.updated_ms,
            "complete_ms": self.report.complete_ms,
            "age_ms": self.age_ms(SystemClock().wall_ms()),
            "cost": None if self.cost is None else asdict(self.cost),
            "schema_changes": [asdict(each) for each in self.schema_changes],
        }


def read_progress(here: OpenProject, log: LogEnds, view: str | None) -> list[VersionProgress]:
    """The progress of all versions, or of those of one view, from one snapshot of the catalog."""
    with here.database.read() as connection:
        views = {each.name: each for each in here.catalog.views(connection)}
        if view is not None:
            here.catalog.view(view, connection)  # Or raises an error if there is no such view.
        known = here.catalog.versions(None, connection)
        progress = {v.key: own for v in known if (own := here.catalog.progress(connection, *v.key)) is not None}
        reports = here.catalog.reports(connection)
    versions = [each for each in known if view is None or each.view == view]
    serving = [each for each in known if views[each.view].serving_version == each.version]
    apart = own_offsets(serving, progress, same_offsets=here.project.same_offsets)
    costs = VersionCosts(here.database).read()
    differences = SchemaChanges(here.database).read()
    if versions:
        log.refresh()
    found = []
    for version in versions:
        serves = views[version.view].serving_version == version.version
        report = reports.get((version.view, version.version), Report(version.view, version.version))
        cost = costs.get(version.key) if version.state in _AT_WORK else None
        made = _version_progress(version, serves, progress.get(version.key), report, log)
        changes = differences[version.key].changes if version.key in differences else ()
        found.append(replace(made, cost=cost, schema_changes=changes, own_offsets=apart.get(version.key)))
    return found


def _version_progress(
    version: Version, serves: bool, progress: Progress | None, report: Report, log: LogEnds
) -> VersionProgress:
    ranges = log.ranges_of(version)
    if ranges is None:
        return VersionProgress(version, serves, progress, None, None, report)
    behind = total = 0
    for place, (start, end) in ranges.items():
        done = progress.offsets.get(place.topic, {}).get(place.partition, start) if progress else start
        behind += max(0, end - done)
        total += end - start
    return VersionProgress(version, serves, progress, behind, total, report)


@dataclass
class LogEnds:
    """The first and last offsets of partitions. A log that does not answer is not asked again for a while."""

    project: Project
    consumer: Consumer | None = None
    ranges: dict[TopicPartition, tuple[int, int]] | None = None
    silent_until: float = field(default=0.0)

    def refresh(self) -> None:
        if time.monotonic() < self.silent_until:
            return
        try:
            self.ranges = self._ask()
        except HeadraceError:
            self.ranges = None
            self.silent_until = time.monotonic() + _TIMEOUT_MS / 1000

    def _ask(self) -> dict[TopicPartition, tuple[int, int]]:
        from headrace.client.consumer.sync_consumer import Consumer
        from headrace.client.types import TopicPartition

        if self.consumer is None:
            config = {**self.project.log_options, "bootstrap.servers": self.project.bootstrap}
            config |= {"default.api.timeout.ms": str(_TIMEOUT_MS), "request.timeout.ms": str(_TIMEOUT_MS)}
            self.consumer = Consumer(config=config, enable_auto_commit=False, auto_offset_reset="none")
        topics = self.consumer.list_topics()
        places = [TopicPartition(name, each.partition) for name, info in topics.items() for each in info.partitions]
        places = [place for place in places if not place.topic.startswith("__")]
        starts, ends = self.consumer.beginning_offsets(*places), self.consumer.end_offsets(*places)
        return {place: (starts[place], ends[place]) for place in places}

    def ranges_of(self, version: Version) -> Mapping[TopicPartition, tuple[int, int]] | None:
        if self.ranges is None:
            return None
        definition = ViewDefinition.from_dict(version.definition)
        return {place: found for place, found in self.ranges.items() if definition.reads(place.topic)}

    def records_of(self, definition: ViewDefinition) -> int | None:
        """How many records a new version of a view reads from the log; None if the log does not answer."""
        if self.ranges is None:
            return None
        ranges = {place: found for place, found in self.ranges.items() if definition.reads(place.topic)}
        if definition.architecture != "kappa" or definition.kappa.start == "earliest":
            return sum(end - start for start, end in ranges.values())
        assert self.consumer is not None, "it has found the ranges"
        begin_ms = start_ms(definition.kappa.start)
        try:
            firsts = self.consumer.offsets_for_times(dict.fromkeys(ranges, begin_ms)) if ranges else {}
        except HeadraceError:
            return None
        return sum(max(0, ranges[place][1] - first.offset) for place, first in firsts.items() if first is not None)

    def close(self) -> None:
        if self.consumer is not None:
            with suppress(HeadraceError):
                self.consumer.close()


@contextmanager
def open_log(project: Project) -> Iterator[LogEnds]:
    log = LogEnds(project)
    try:
        yield log
    finally:
        log.close()
