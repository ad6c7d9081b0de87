"""Says what an event costs in each way, in numbers and words. The numbers are those of the code that runs the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.maintenance.ways import Cost
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.query.grouping import grouping_of
from headrace.pipeline.query.row_keys import output_mode
from headrace.pipeline.query.row_partials import RowPartials

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipeline.query.aggregates import Algebra


def cost_of_combining(spark: SparkSession, definition: ViewDefinition, algebra: Algebra) -> Cost:
    """Of a Lambda view: the speed layer, the archive and the batches."""
    every = definition.lambda_.batch_every_ms
    when = f"({duration_text(every)} after the last one)" if every else "that is asked for"
    jobs, work = _micro_batch(spark, definition, algebra)
    return Cost(
        records_read=3,
        reads=(
            "by the speed layer, by the copy to the archive (once for all views), and from the archive by the next "
            f"batch {when}"
        ),
        jobs=jobs,
        work=work,
        state=(
            f"per group one row of {_partials(algebra)} partial results, in the last batch and for the "
            "groups with records since then; the archive has every record"
        ),
    )


def cost_of_combining_log(spark: SparkSession, definition: ViewDefinition, algebra: Algebra) -> Cost:
    """Of a Kappa view: micro-batches over the log, and the table."""
    jobs, work = _micro_batch(spark, definition, algebra)
    state = f"per group {_partials(algebra)} partial results, in the row of the group"
    return Cost(records_read=1, reads="by a micro-batch", jobs=jobs, work=work, state=state)


def _partials(algebra: Algebra) -> int:
    return len(algebra.stored_schema.names) - len(algebra.key_columns)


def _micro_batch(spark: SparkSession, definition: ViewDefinition, algebra: Algebra) -> tuple[int, str]:
    """The Spark jobs of a small micro-batch, and what it does."""
    from headrace.pipeline.lambda_.speed_layer import MAX_RECORDS_IN_DRIVER

    in_driver = RowPartials.prepare(spark, definition, algebra) is not None
    how = "no Spark job: it is computed in the driver" if in_driver else "one Spark job: its functions need a worker"
    work = (
        f"a micro-batch of up to {MAX_RECORDS_IN_DRIVER:,} records needs {how}; a larger one is a Spark job. "
        "It reads and writes one row per group that has new records"
    )
    return 0 if in_driver else 1, work


def cost_of_streaming(definition: ViewDefinition, query: DataFrame) -> Cost:
    """Of a Kappa view: Spark's stream, its checkpoint and the table."""
    grouping = grouping_of(query)
    until = " until the watermark has passed it" if definition.watermark else ", forever: the view has no [watermark]"
    if grouping is None:
        state = "nothing besides the answer and the offsets"
        work = "one Spark job. It writes one row per new row"
    else:
        state = f"in Spark's checkpoint, one entry per group{until}"
        is_whole = output_mode(query) == "complete"
        rows = "all rows of the answer, because rows may disappear again" if is_whole else "one row per changed group"
        work = f"one Spark job, whose tasks read and write the state. It writes {rows}"
    return Cost(records_read=1, reads="by the stream", jobs=1, work=f"a micro-batch needs {work}", state=state)


def cost_of_whole(definition: ViewDefinition) -> Cost:
    """Of either architecture: builds, each over all records."""
    every = definition.batch_every_ms
    when = f"{duration_text(every)} after the last one" if every else "when it is asked for"
    work = "a new record needs no work before the next build, and is not in the answer before that"
    return Cost(
        records_read=1,
        reads=f"by every build, because a build reads all records from the start; a build begins {when}",
        jobs=0,
        work=work + late_text(definition),
        state="nothing besides the answer and the offsets",
    )


def late_text(definition: ViewDefinition) -> str:
    """Describes how views that are not Spark streams handle late events."""
    names = [source.name for source in definition.inputs if source.watermark is not None]
    if not names:
        return ""
    if definition.architecture == "lambda":
        return f". Late events count: a Lambda view does not use the watermark of {' and '.join(names)}"
    late = "events are left out whose time is before the watermark of the earlier records of their partition"
    return f". Of {' and '.join(names)}, {late}"


def duration_text(ms: int) -> str:
    """``10 minutes``."""
    for size, name in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second")):
        if ms % size == 0:
            count = ms // size
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{ms} ms"
