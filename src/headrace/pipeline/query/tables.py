"""Names the tables that the SQL of a view reads: its sources, or ``events`` and one table per topic.

======================================  ===========================================================================
``FROM events``                         the records of all topics of the view
``FROM orders``, ``FROM `my-topic```    the records of that topic alone
======================================  ===========================================================================

A view that reads sources has one table per source, with the name of the source. If the view has topics of its own too,
it also has the tables above (``project.own_tables``). A view that reads views has one table per view.

In a view of one topic both names mean the same records. A view with a ``pattern`` has only ``events``: its topics are
not known when its query is checked. Names of topics are case-sensitive in Kafka, and names of tables are not in Spark.
A name that would mean two topics, or a topic named ``events`` besides others, is not available; ``missing_table``
explains why.

The tables are temporary views of Spark's session, which all views of a project share. So only one query at a time has
tables.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.own_tables import has_own_records, topics_by_table
from headrace.pipeline.project.source_definition import EVENTS
from headrace.pipeline.project.views_on_views.upstream import is_of_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_lock = threading.Lock()


def tables_by_name(
    definition: ViewDefinition, events: DataFrame | None, sources: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    """The tables that the view's query can read.

    :param events: the events of a view without ``definition.sources``.
    :param sources: the rows of each of ``definition.sources``, by the source's name.
    """
    from pyspark.sql import functions as F  # noqa: N812

    own = sources.get(EVENTS) if has_own_records(definition) else events
    named = {name: rows for name, rows in sources.items() if not is_of_view(name)}
    if own is None:
        return named
    tables = {
        name: own if topic is None else own.where(F.col("_topic") == topic)
        for name, topic in topics_by_table(definition).items()
    }
    return {**named, **tables}


@contextmanager
def named_tables(spark: SparkSession, tables: Mapping[str, DataFrame]) -> Iterator[None]:
    """Within this context, SQL of the session can read the tables by their names."""
    with _lock:
        try:
            for name, table in tables.items():
                table.createOrReplaceTempView(f"`{name}`")
            yield
        finally:
            for name in tables:
                spark.catalog.dropTempView(name)


def table_names(definition: ViewDefinition) -> list[str]:
    """The names of all tables that the view's query can read."""
    sources = [source.name for source in definition.sources if not is_of_view(source.name)]
    views = [view.name for view in definition.views]
    return list(dict.fromkeys([*sources, *topics_by_table(definition), *views]))


def missing_table(definition: ViewDefinition, name: str) -> str | None:
    """Explains why a query of this view has no such table, and what to write instead. None for an unknown name.

    :param name: the name without backticks.
    """
    several = len(definition.topics) > 1
    alike = [topic for topic in definition.topics if topic.lower() == name.lower()]
    if several and alike and name.lower() == EVENTS:
        pattern = "|".join(topic.replace(".", "[.]") for topic in definition.topics)
        return (
            f"FROM {name} is ambiguous: {EVENTS} means the records of all topics, and the view has a topic named "
            f'{alike[0]}; set pattern = "{pattern}" instead of topics, so that {EVENTS} means all of '
            f"them, and select by WHERE _topic = '{alike[0]}'"
        )
    if several and len(alike) > 1:
        return (
            f"FROM {name} is ambiguous: the view has the topics {' and '.join(alike)}, and SQL ignores the case of "
            f"names; write FROM {EVENTS} WHERE _topic = '{alike[0]}'"
        )
    if alike:
        return f"there is no table {name}: write the name of the topic in backticks, FROM `{alike[0]}`"
    if definition.pattern:
        return f"there is no table {name}: in a view with a pattern, write FROM {EVENTS} WHERE _topic = '{name}'"
    return None
