"""The pipeline: keeps the answer of a query over the log as a SQL table, by the Lambda or the Kappa architecture.

The packages, from top to bottom (import-linter checks the order)::

    management                  what people do with a project, from the commands and from Python
    runner                      ``headrace views run``: starts, watches, retries and switches versions
    shared_spark, source_watch  commands use the runner's Spark; whether records still have the columns of a source
    view_tests                  tests of views: their files, running them, comparing rows, reports
    maintenance                 how a view is kept up to date: the choice, its reasons and its cost
    whole                       views whose whole answer is computed again, and swapped
    touched                     views kept by touched keys: operators, their state, micro-batches, builds
    kappa                       a Kappa view, by merging partial results or as a Spark stream
    lambda_                     batch layer, speed layer, and the store that combines them
    version                     the interface of a running version, its failures and metrics
    common_cut                  views that read the same topics move on together
    query                       the query of a view: plan, checks, and the algebra of partial results
    export                      views as Delta tables
    changes                     the changes of views: the outbox, the change feed, published topics
    decoding, archive           from records to events, and dead letters; records as Parquet files
    spark                       the session, the data source and sink ``headrace``, Spark's query plans
    project, progress           the files of a project; offsets and lag
    inference                   guesses the file of a source from records
    serving                     the serving database: catalog, tables, queries

The pipeline uses the clients and the protocol, not the broker. ``changes``, ``export``, ``inference``, ``project``,
``progress`` and ``serving`` do not import Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.management.project import Project

__all__ = ["Project", "register"]


def __getattr__(name: str) -> object:
    """Imports :class:`Project` when it is used: most parts of the pipeline do not need it."""
    if name == "Project":
        from headrace.pipeline.management.project import Project

        return Project
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register(spark: SparkSession) -> None:
    """Registers the data source ``headrace`` with a session, for ``.format("headrace")``.

    With a local master (``local[*]``) tasks use the Python that runs this program, unless another one is configured:
    this Python has this package. It also starts faster than Spark would start it (``spark.python_worker``).
    """
    from headrace.pipeline.spark.python_worker import choose_python
    from headrace.pipeline.spark.source.data_source import HeadraceSource

    choose_python(spark.sparkContext)
    spark.dataSource.register(HeadraceSource)
