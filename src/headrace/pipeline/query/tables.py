"""Names the tables that the SQL of a view reads: ``events``, and one per topic.

======================================  ===========================================================================
``FROM events``                         the records of all topics of the view
``FROM orders``, ``FROM `my-topic```    the records of that topic alone
======================================  ===========================================================================

In a view of one topic both names mean the same records. A view with a ``pattern`` has only ``events``: its topics are
not known when its query is checked. Names of topics are case-sensitive in Kafka, and names of tables are not in Spark.
A name that would mean two topics, or a topic named ``events`` besides others, is not available; ``missing_table``
explains why.

The tables are temporary views of Spark's session, which all views of a project share. So only one query at a time has
tables.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.pipeline.project.definition import ViewDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = "events"
_lock = threading.Lock()


@contextmanager
def named_tables(spark: SparkSession, definition: ViewDefinition, events: DataFrame) -> Iterator[None]:
    """Within this context, SQL of the session can read the events by the names of the view's tables."""
    from pyspark.sql import functions as F  # noqa: N812

    tables = {
        name: events if topic is None else events.where(F.col("_topic") == topic)
        for name, topic in topics_by_table(definition).items()
    }
    with _lock:
        try:
            for name, table in tables.items():
                table.createOrReplaceTempView(f"`{name}`")
            yield
        finally:
            for name in tables:
                spark.catalog.dropTempView(name)


def topics_by_table(definition: ViewDefinition) -> dict[str, str | None]:
    """For each table, its topic; None for the records of all topics, which need no filter by topic."""
    topics = definition.topics
    if len(topics) <= 1:
        return dict.fromkeys((EVENTS, *topics))
    tables: list[tuple[str, str | None]] = [(EVENTS, None), *((topic, topic) for topic in topics)]
    count = Counter(name.lower() for name, _ in tables)
    return {name: topic for name, topic in tables if count[name.lower()] == 1}


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
            "them, and select by "
            f"WHERE _topic = '{alike[0]}'"
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
