"""Frames that stand for the sources of a query, so that its plan can be cut without data.

A placeholder is an empty frame over an RDD. The optimizer does not look into it, and the id of its RDD says which
source it stands for, however often the query reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Placeholders(NamedTuple):
    """
    :ivar frames: by the name of a source, its frame.
    :ivar sources: by the id of a frame's RDD, the name of the source.
    """

    frames: dict[str, DataFrame]
    sources: dict[int, str]


def placeholders(spark: SparkSession, schemas: Mapping[str, StructType]) -> Placeholders:
    frames = {name: spark.createDataFrame(spark.sparkContext.emptyRDD(), schema) for name, schema in schemas.items()}
    ids = {int(frame._jdf.queryExecution().analyzed().rdd().id()): name for name, frame in frames.items()}
    return Placeholders(frames, ids)
