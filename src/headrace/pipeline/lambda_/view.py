"""Runs a version of a Lambda view whose partial results are combined: its batch layer and its speed layer.

A batch is a build (``version.built_version``, which has the threads and the schedule), and the speed layer is what runs
between builds. The first batch covers everything that the log has, and the speed layer begins at its cut. So a new view
does not need thousands of micro-batches. From then on both layers run side by side. A batch may take long; it is
committed in one transaction between two micro-batches.

If the log is small, the speed layer reads all of it, and the first batch follows half a minute later: a few
micro-batches in the driver take less time than the first jobs of a Spark session, which start Python processes.
"""

from __future__ import annotations

from contextlib import closing

from headrace.pipeline.lambda_.batch_layer import BatchLayer, BatchStopped
from headrace.pipeline.lambda_.speed_layer import SpeedLayer
from headrace.pipeline.lambda_.store import LambdaStore, batch_name, drop_tables
from headrace.pipeline.progress.data_loss import check_same_topics
from headrace.pipeline.progress.lag import Lag
from headrace.pipeline.progress.offsets import by_topic, is_before
from headrace.pipeline.query.aggregates import Algebra, arrow_schema
from headrace.pipeline.query.plan import analyze
from headrace.pipeline.query.row_keys import identifying_columns
from headrace.pipeline.query.view_query import apply_query, empty_events
from headrace.pipeline.serving.catalog import Batch, Version, VersionEvent
from headrace.pipeline.serving.catalog_tables.version_columns import set_columns
from headrace.pipeline.spark.job_progress import jobs_with_tag, records_read
from headrace.pipeline.spark.source.log_offsets import LogOffsets
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.version.built_version import ARCHIVE_EVERY_MS, BuiltVersion
from headrace.pipeline.version.context import RunContext

#: A log with at most this many records is read by the speed layer before the first batch.
SMALL_LOG = 100_000
#: How long after the start the first batch begins, if the log was small.
_FIRST_BATCH_AFTER_MS = 30_000


class _Layers:
    """The parts of a version that exist once Spark has analyzed its query."""

    def __init__(self, context: RunContext, running: LambdaView) -> None:
        definition, version = running.definition, running.version
        query = apply_query(context.spark, definition, empty_events(context.spark, definition))
        algebra = Algebra(analyze(query))
        key = identifying_columns(definition, query)
        set_columns(context.database, version.key, key, arrow_schema(query.schema))
        self.store = LambdaStore(context.database, context.catalog, version.view, version.version, algebra)
        self.dead_letters = running.dead_letters()
        self.speed = SpeedLayer(context, definition, self.store, algebra, self.dead_letters, running.work)
        self.batch = BatchLayer(context, definition, self.store, algebra, context.archive, self.dead_letters)

    def close(self) -> None:
        self.speed.close()
        self.dead_letters.close()


class LambdaView(BuiltVersion):
    def __init__(self, context: RunContext, version: Version) -> None:
        super().__init__(context, version)
        self._layers: _Layers | None = None

    def lag(self) -> Lag:
        return self._layers.speed.lag() if self._layers is not None and self._has_build else Lag()

    def reading(self) -> int:
        """Records of the first batch only: during later batches the view already has an answer."""
        first = None if self._layers is None or self._has_build else self._layers.batch.first_batch_size
        if first is None:
            return 0
        spark = self.context.spark
        return first.records_after(records_read(spark, jobs_with_tag(spark, self._tag)))

    def run_once(self) -> None:
        self._once(self._catch_up)

    def _catch_up(self) -> None:
        layers = self._opened
        if layers.store.progress() is None:
            self._run_build(is_full=True)
            return
        self._follow_to_the_end()
        self._run_build(is_full=False)

    def _advance(self) -> None:
        if self._opened.store.progress() is None and not self._begins_without_batch():
            self._run_build(is_full=True)
        self._follow_to_the_end()

    def _follow_to_the_end(self) -> None:
        layers = self._opened
        target = layers.batch.log_ends()
        while (progress := layers.store.progress()) is None or not is_before(target, progress.offsets):
            layers.speed.step()

    def drop(self) -> None:
        """Drops the tables. The archive belongs to the project and stays."""
        view, version = self.version.view, self.version.version
        with self.context.database.begin() as connection:
            batches = [each.batch for each in self.context.catalog.batches(connection, view, version)]
            drop_tables(connection, view, version, batches)
        self.context.database.drop_stages(batch_name(view, version, max(batches, default=0) + 1))

    # ------------------------------------------------------------------------------------------------- for its builds

    @property
    def _opened(self) -> _Layers:
        assert self._layers is not None, f"{self.label} is not open"
        return self._layers

    def _open(self) -> None:
        layers = _Layers(self.context, self)
        try:
            with self.context.database.begin() as connection:
                layers.store.create(connection)
                self.context.catalog.set_state(
                    self.version.view, self.version.version, VersionEvent.STARTED, connection=connection
                )
        except BaseException:
            layers.close()
            raise
        self._layers = layers

    def _close(self) -> None:
        if self._layers is not None:
            self._layers.close()

    def _check_topics(self) -> None:
        progress = self._opened.store.progress()
        if progress is None:
            return
        if progress.topic_ids:  # nothing is archived yet
            with closing(LogOffsets(self._source_options)) as log:
                log.partitions(skip_missing=True)
                known = {topic: str(topic_id or "") for topic, topic_id in log.topic_ids.items()}
            check_same_topics(progress, known, self.label)
        for topic in sorted(progress.offsets):
            self.context.archive.check(topic)

    def _last_build(self) -> Batch | None:
        return next(reversed(self._opened.store.batches()), None)

    def _begin(self) -> None:
        has_batch, has_begun = self._last_build() is not None, self._opened.store.progress() is not None
        if has_batch or not (has_begun or self._begins_without_batch()):
            super()._begin()
            return
        every_ms = self.definition.lambda_.batch_every_ms or _FIRST_BATCH_AFTER_MS
        self._due_ms = self.context.clock.wall_ms() + min(every_ms, _FIRST_BATCH_AFTER_MS)
        self._archive_due_ms = self._due_ms + ARCHIVE_EVERY_MS

    def _begins_without_batch(self) -> bool:
        """Whether the speed layer may read the log from its start: if it is small, and has lost nothing yet."""
        with closing(LogOffsets(self._source_options)) as log:
            partitions = log.partitions()
            starts, ends = log.earliest(partitions), log.latest(partitions)
            topic_ids = {topic: str(topic_id or "") for topic, topic_id in log.topic_ids.items()}
        if any(starts.values()) or sum(ends.values()) > SMALL_LOG:
            return False
        for topic in sorted(by_topic(starts)):
            self.context.archive.check(topic)
        self._opened.store.begin_at(by_topic(starts), topic_ids)
        return True

    @property
    def _source_options(self) -> SourceOptions:
        options = {**self.context.log_options, **self.definition.which_topics}
        return SourceOptions.parse(options, is_stream=False)

    def _build(self, *, is_full: bool) -> str | None:
        done = self._opened.batch.run(is_full, self._stopping.is_set)
        kind = "full" if done.is_full else "incremental"
        return f"batch {done.batch} ({kind}, {done.rows} rows)" if done.is_new else None

    def _follow(self) -> None:
        self._opened.speed.run(self._stopping)

    def _archive(self) -> None:
        self._opened.batch.archive()

    def _advice(self) -> str:
        topics = self.definition.topics or ("TOPIC",)  # of a pattern: the error names the topic
        return "; ".join(map(self.context.archive.advice, topics))


__all__ = ["BatchStopped", "LambdaView"]
