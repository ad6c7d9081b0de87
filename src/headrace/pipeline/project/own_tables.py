"""Names the tables that a view's own records have in its query: ``events``, and one table per topic."""

from __future__ import annotations

from collections import Counter

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import EVENTS
from headrace.pipeline.project.views_on_views.upstream import is_of_view


def has_own_records(definition: ViewDefinition) -> bool:
    """Whether one of the view's sources is the view's own topics and decoding."""
    return any(source.name == EVENTS and source.file == definition.file for source in definition.sources)


def topics_by_table(definition: ViewDefinition) -> dict[str, str | None]:
    """For each table, its topic; None for the records of all topics, which need no filter by topic."""
    if definition.source_name:
        return {} if is_of_view(definition.source_name) else {definition.source_name: None}
    if definition.sources and not has_own_records(definition):
        return {}
    topics = next((source.topics for source in definition.sources if source.name == EVENTS), definition.topics)
    if len(topics) <= 1:
        return dict.fromkeys((EVENTS, *topics))
    tables: list[tuple[str, str | None]] = [(EVENTS, None), *((topic, topic) for topic in topics)]
    count = Counter(name.lower() for name, _ in tables)
    return {name: topic for name, topic in tables if count[name.lower()] == 1}
