"""The rows of a source: decodes its records, and finds the rows of a table among them.

    raw        records of the log (``spark.source``)
    decoded    as in ``events``; for a table also ``_removed``: whether the record removes the row of its key
    good       the rows without an ``_error``, with ``_removed``                      (``events.good_rows``)
    current    the rows that a query reads: the columns of the schemas and ``_topic`` to ``_key``

The rows of a table depend only on a prefix of its topics, never on the batches in which they were read.

The columns of the schema are NULL in a record that removes a row. A record of kind ``changes`` that removes a row and
has no key removes all rows of its topic that came before it in its partition (``envelopes``: op t).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.decoding.envelopes import OPERATION, TRUNCATES
from headrace.pipeline.decoding.events import (
    ERROR,
    HEADERS,
    RECORD_COLUMNS,
    VALUE,
    decode_frame,
    event_schema,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headrace.pipeline.project.source_definition import SourceDefinition

REMOVED = "_removed"
#: Whether a record is the newest one of its key in all partitions.
_NEWEST = "_newest"
_NUMBER = "_number"
_NO_KEY = "the record has no key, and the key identifies the row of a table"


def source_schema(source: SourceDefinition) -> StructType:
    """The columns of a source that a query can use."""
    return event_schema(source.decode)


def decode_source(source: SourceDefinition, raw: DataFrame, *, is_optimized: bool = True) -> DataFrame:
    """All records, with ``_error`` for bad ones and, for a table, ``_removed``. Works for batches and streams.

    :param is_optimized: see ``events.decode_frame``.
    """
    from pyspark.sql import functions as F  # noqa: N812

    decoded = decode_frame(source.decode, raw, is_optimized=is_optimized)
    if not source.is_table:
        return decoded
    has_value, has_key = F.col(VALUE).isNotNull(), F.col("_key").isNotNull()
    operation = F.col(OPERATION) if source.decode.envelope else F.lit("u")
    is_set = has_value & operation.isin("c", "r", "u")
    truncates = F.coalesce(operation == TRUNCATES, F.lit(False))
    # A record without a value removes a row, and a truncation has no key: their decoding has failed, as it should.
    error = F.when(has_value & ~(truncates & ~has_key), F.col(ERROR))
    no_key = F.when(~has_key & ~truncates, F.lit(_NO_KEY))
    columns = [name for name in source_schema(source).names if name not in RECORD_COLUMNS]
    headers = [HEADERS] if HEADERS in decoded.columns else []
    return decoded.select(
        *(F.when(is_set, F.col(_quoted(name))).alias(name) for name in columns),
        *RECORD_COLUMNS,
        *headers,
        VALUE,
        F.coalesce(no_key, error).alias(ERROR),
        F.coalesce(~is_set, F.lit(True)).alias(REMOVED),
    )


def current_rows(source: SourceDefinition, good: DataFrame) -> DataFrame:
    """The rows of the source at the prefix that these records are. For batches only.

    :param good: ``events.good_rows`` of what ``decode_source`` returned. Columns of the schema may be missing.
    """
    if not source.is_table:
        return good
    newest = newest_of_keys(newest_of_partitions(after_truncations(good) if source.decode.envelope else good))
    return newest.select(*(_quoted(name) for name in source_schema(source).names if name in good.columns))


def newest_of_partitions(good: DataFrame) -> DataFrame:
    """The newest record of each key in each partition, with the columns of the given records and ``_NEWEST``.

    Windows over sorted rows take a third less than ``max_by``, which makes a struct of each row.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    of_partition = Window.partitionBy("_key", "_topic", "_partition").orderBy(F.desc("_offset"))
    of_key = Window.partitionBy("_key").orderBy(F.desc("_timestamp"), F.desc("_topic"), F.desc("_partition"))
    # Moved by the key alone, so that the second window need not move them again.
    numbered = good.repartition("_key").withColumn(_NUMBER, F.row_number().over(of_partition))
    newest = numbered.where(F.col(_NUMBER) == 1).drop(_NUMBER)
    return newest.withColumn(_NEWEST, F.row_number().over(of_key) == 1)


def newest_of_keys(newest: DataFrame) -> DataFrame:
    """The rows of a table, of what :func:`newest_of_partitions` returned."""
    from pyspark.sql import functions as F  # noqa: N812

    return newest.where(F.col(_NEWEST) & ~F.col(REMOVED)).drop(_NEWEST, REMOVED)


def after_truncations(good: DataFrame) -> DataFrame:
    """The records that follow the last truncation of their partition. Truncations have no key, and are few."""
    from pyspark.sql import functions as F  # noqa: N812

    has_key, place = F.col("_key").isNotNull(), ["_topic", "_partition"]
    truncations = good.where(~has_key).groupBy(*place).agg(F.max("_offset").alias("_truncated"))
    joined = good.where(has_key).join(F.broadcast(truncations), place, "left")
    return joined.where(F.col("_offset") > F.coalesce("_truncated", F.lit(-1))).drop("_truncated")


def records_of(source: SourceDefinition, raw: DataFrame) -> DataFrame:
    """The records of the source's topics."""
    from pyspark.sql import functions as F  # noqa: N812

    topic = F.col("topic")
    return raw.where(topic.isin(*source.topics) if source.topics else topic.rlike(f"^(?:{source.pattern})$"))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
