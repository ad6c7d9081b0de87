"""Decides which views other views can read, and makes the part of a definition that they become there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.own_tables import has_own_records, topics_by_table
from headrace.pipeline.project.source_definition import EVENTS, SourceDefinition
from headrace.pipeline.project.views_on_views.upstream import UpstreamTable, UpstreamView, is_of_view, records_of_view


def why_not_readable(upstream: ViewDefinition, reader: ViewDefinition) -> str | None:
    """Why the query of ``reader`` cannot stand for what readers of ``upstream`` see, and what to do; None if it can."""
    name = upstream.name
    if upstream.keep is not None:
        return (
            f"{name} has [keep], so its old rows are deleted, and a query over {name} would still count them: remove "
            f"[keep] from {upstream.file}, or give it to this view, with the query of {name} as a subquery"
        )
    if any(path[0] == "watermark" for path in upstream.lines):
        where = upstream.source_file if upstream.source_name else "a file in sources/, with the topics and [decode]"
        return (
            f"{name} has a [watermark] of its own, so this view would count late events that {name} drops: move the "
            f"[watermark] from {upstream.file} to {where}"
        )
    if _start(upstream) != _start(reader):
        return (
            f"{name} begins at {_start(upstream)!r}, and this view at {_start(reader)!r}: set the same kappa.start in "
            "both files"
        )
    return None


def _start(definition: ViewDefinition) -> str:
    return definition.kappa.start if definition.architecture == "kappa" else "earliest"


def upstream_of(definition: ViewDefinition) -> UpstreamView:
    """A view as it stands in the definitions of views that read it.

    :param definition: of the view, with its sources.
    """
    may_replace = definition.architecture == "kappa" and definition.maintain in ("", "stream")
    return UpstreamView(
        name=definition.name,
        query=definition.query,
        tables=tuple(_tables(definition)),
        answer_hash=definition.answer_hash,
        replaced_by=definition.key if may_replace else (),
    )


def _tables(definition: ViewDefinition) -> list[UpstreamTable]:
    records = records_of_view(definition.name)
    views = [each.name for each in definition.views]
    own = topics_by_table(definition)
    if definition.query.is_python:
        names = definition.reads_directly or [each.name for each in definition.inputs]
        return [UpstreamTable(name, _reads(definition, name, views)) for name in names]
    named = [each.name for each in definition.sources if not is_of_view(each.name)]
    tables = [UpstreamTable(name, _reads(definition, name, views)) for name in named]
    tables += [UpstreamTable(name, name) for name in views]
    if definition.source_name:
        return tables + [UpstreamTable(name, name) for name in own]
    return [each for each in tables if each.name not in own] + [
        UpstreamTable(name, records, topic or "") for name, topic in own.items()
    ]


def _reads(definition: ViewDefinition, name: str, views: Collection[str]) -> str:
    """The source or view that a name means to views that read this view."""
    is_own = not definition.source_name if not definition.sources else has_own_records(definition)
    return records_of_view(definition.name) if name == EVENTS and is_own and name not in views else name


def sources_of(
    definition: ViewDefinition, known: Mapping[str, SourceDefinition], above: Mapping[str, SourceDefinition]
) -> tuple[SourceDefinition, ...]:
    """The sources of a view as the views that read it have them: as their own files define them.

    :param known: the sources of the project, by their names in lower case.
    :param above: the records of views that the view reads, by the names of these sources.
    """
    found = []
    for each in definition.inputs:
        if each.name in above:
            found.append(above[each.name])
        elif each.file == definition.file:
            found.append(replace(each, name=records_of_view(definition.name)))
        else:
            found.append(known[each.name.lower()])
    return tuple(found)
