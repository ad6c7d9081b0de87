"""Looks up the names in the queries of all views, in an order in which every view follows those that it reads.

Views that read each other are refused: each cycle is one problem, with its path. These views, and the views that read
them, get no sources, and their queries are not checked further.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.publish_table import check_publish
from headrace.pipeline.project.resolution import KnownSources, ReadableView, UnresolvedView, resolve
from headrace.pipeline.project.views_on_views.order import order_of
from headrace.pipeline.project.views_on_views.upstream_checks import sources_of, upstream_of

#: Fields without which a query that reads the view cannot be checked.
_NEEDED = frozenset({"query", "topics", "pattern", "sources", "decode"})


def resolve_all(
    views: Mapping[str, UnresolvedView], known: KnownSources, names_of_views: Collection[str]
) -> dict[str, ViewDefinition]:
    """The definitions of views, by name.

    :param views: those whose files are valid TOML.
    :param names_of_views: the names of all views.
    """
    unreadable = frozenset(names_of_views) - views.keys()
    reads = {name: [each.name.lower() for each in view.names_of(names_of_views)] for name, view in views.items()}
    order = order_of(reads)
    for cycle in order.cycles:
        _report_cycle(views, cycle)
    definitions: dict[str, ViewDefinition] = {}
    readable: dict[str, ReadableView] = {}
    for name in order.names:
        view = views[name]
        definitions[name] = resolve(view, known, readable, names_of_views)
        check_publish(definitions[name], view.file)
        if unreadable & set(reads[name]):  # the file of a view that it reads is not TOML
            view.file.invalid_fields.add("query")
        readable[name] = _readable(view, definitions[name], known, readable)
    for name, view in views.items():
        if name not in definitions:
            definitions[name] = view.definition
            view.file.invalid_fields.add("query")
    return dict(sorted(definitions.items()))


def _readable(
    view: UnresolvedView, definition: ViewDefinition, known: KnownSources, readable: Mapping[str, ReadableView]
) -> ReadableView:
    above = {source.name: source for each in definition.views for source in readable[each.name].sources}
    return ReadableView(
        definition=definition,
        as_upstream=upstream_of(definition),
        sources=sources_of(definition, known.by_name, above),
        above=definition.views,
        invalid_fields=frozenset(view.file.invalid_fields & _NEEDED),
    )


def _report_cycle(views: Mapping[str, UnresolvedView], cycle: list[str]) -> None:
    first = views[cycle[0]]
    name = next(each for each in first.names or () if each.name.lower() == cycle[1])
    first.report_name(name, f"views cannot read each other: {' -> '.join(cycle)}; remove one of these names")
