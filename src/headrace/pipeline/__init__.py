"""The pipeline: one query over the log, kept as a SQL table by Spark, by the Lambda or the Kappa architecture.

It sees the clients and the protocol, nothing of the broker. Spark is imported only where it is used: the catalog of
views and queries do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes ``.format("headrace")`` known to a session.

    On this machine alone (``local[*]``) tasks run with the Python that runs this program, unless something else is set:
    it is the one that surely has this package. It starts sooner than Spark would start it (``spark_python``).
    """
    from headrace.pipeline.spark.python_worker import choose_python
    from headrace.pipeline.spark.source.data_source import HeadraceSource

    choose_python(spark.sparkContext)
    spark.dataSource.register(HeadraceSource)
