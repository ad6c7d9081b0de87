"""Finds the sources and views that a view's query names, and makes them part of the view's definition.

A name in FROM is looked up without regard to case: first among the view's own tables (``events`` and the view's
topics, if its file has topics and [decode]), then among the sources and the other views of the project. A name that
means two of them is refused.

===================================  ================================================================================
the query names                      the definition
===================================  ================================================================================
only the view's own tables           stays as it is
one source of kind ``events``        gets the source's topics, decoding and watermark as its own
anything else                        gets ``sources``; the view's own records are one of them, named ``events``
===================================  ================================================================================

For each view that the query names, the sources that this view reads count as well, and the definition gets the query of
the view in ``views``.

A Python query names its tables by the parameters of its function, or by ``sources = [...]`` in the view's file. The
function gets them in this order. A function with one parameter, in a view with its own records, gets these records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import EVENTS, SourceDefinition
from headrace.pipeline.project.table_names import TableName, parameters_of, tables_of_sql
from headrace.pipeline.project.toml_files import Problem, TomlFile, did_you_mean
from headrace.pipeline.project.views_on_views.upstream import UpstreamView
from headrace.pipeline.project.views_on_views.upstream_checks import why_not_readable


@dataclass(frozen=True)
class KnownSources:
    """The sources of a project.

    :param by_name: by their names in lower case.
    :param invalid_fields: for each source with problems in its file, by its name in lower case, the invalid fields.
    """

    by_name: Mapping[str, SourceDefinition]
    invalid_fields: Mapping[str, Collection[str]]


@dataclass(frozen=True)
class ReadableView:
    """A view that other views can read.

    :param as_upstream: how it stands in the definitions of these views.
    :param sources: the sources of its query, and of the views that it reads, as these views read them.
    :param above: the views that it reads, each after those that it reads itself.
    :param invalid_fields: the fields of its file, or of files that it depends on, that have a problem.
    """

    definition: ViewDefinition
    as_upstream: UpstreamView
    sources: tuple[SourceDefinition, ...]
    above: tuple[UpstreamView, ...]
    invalid_fields: frozenset[str]


@dataclass
class UnresolvedView:
    """A view whose file was read, before the names in its query are looked up.

    :param file: the view's file, which gets the problems.
    :param listed: the field ``sources`` of the file.
    :param has_own: whether the file has topics and decoding of its own.
    :param names: the tables that the query names; None if there is nothing to look up.
    """

    definition: ViewDefinition
    file: TomlFile
    listed: tuple[str, ...]
    has_own: bool
    names: list[TableName] | None

    @property
    def own_tables(self) -> frozenset[str]:
        """The names of the view's own records, in lower case."""
        if not self.has_own:
            return frozenset()
        topics = () if self.definition.query.is_python else self.definition.topics
        return frozenset({EVENTS, *(topic.lower() for topic in topics)})

    def names_of(self, views: Collection[str]) -> list[TableName]:
        """The views that the query names. A view's own tables and its own name are not among them."""
        own = {*self.own_tables, self.definition.name}
        return [each for each in self.names or () if each.name.lower() in views and each.name.lower() not in own]

    def report_name(self, name: TableName, message: str) -> None:
        """Reports a problem of a name that the query, or the field ``sources``, has."""
        if self.listed:
            self.file.report(message, "sources")
        else:
            problem = Problem(Path(self.definition.query.file), name.line, message, name.column)
            self.file.add_problem(problem, "query")


def names_in(
    definition: ViewDefinition, file: TomlFile, listed: tuple[str, ...], *, has_own: bool
) -> list[TableName] | None:
    """The tables that the query names; None if there is nothing to look up."""
    if listed:
        line = file.line("sources") or 1
        return [TableName(name, line, 1) for name in dict.fromkeys(listed)]
    if not definition.query.text:
        return None
    if not definition.query.is_python:
        return tables_of_sql(definition.query.text)
    names = parameters_of(definition.query)
    if has_own and (names is None or len(names) == 1):
        return None
    if not names:
        file.report('say which sources the function gets, in their order: sources = ["orders", "customers"]', "query")
        return None
    return names


def resolve(
    view: UnresolvedView, known: KnownSources, readable: Mapping[str, ReadableView], names_of_views: Collection[str]
) -> ViewDefinition:
    """
    :param readable: the views that the query can read.
    :param names_of_views: the names of all views of the project.
    """
    definition, file, names = view.definition, view.file, view.names
    if names is None:
        return definition
    own = view.own_tables
    _report_ambiguous(view, known, names_of_views)
    reads_own = any(each.name.lower() in own for each in names)
    used = [EVENTS if each.name.lower() in own else each.name.lower() for each in names]
    used = [name for name in dict.fromkeys(used) if (name == EVENTS and reads_own) or name in known.by_name]
    views = [readable[each.name.lower()] for each in view.names_of(readable) if each.name.lower() not in used]
    if not view.has_own or view.listed:
        others = set(names_of_views) - {definition.name}
        _report_unknown(view, names, {*own, *known.by_name, *others})
    if not views and not any(name in known.by_name and not (name == EVENTS and reads_own) for name in used):
        return definition
    if view.has_own and not reads_own:
        file.report(
            "the query does not read the view's own topics: name them in FROM, or remove topics and [decode]", "query"
        )
    for name in used:
        file.invalid_fields.update(known.invalid_fields.get(name, ()))
    own_source = {EVENTS: replace(definition.own_source, name=EVENTS)} if reads_own else {}
    direct = [{**known.by_name, **own_source}[name] for name in used]
    if views:
        definition = _on_views(view, views, names, {*used})
    sources = tuple(
        {each.name: each for each in (*direct, *(each for view in views for each in view.sources))}.values()
    )
    if len(sources) == 1 and sources[0].kind == EVENTS:
        return _inlined(definition, sources[0])
    return _over_sources(definition, file, sources)


def _on_views(
    view: UnresolvedView, views: list[ReadableView], names: list[TableName], sources: Collection[str]
) -> ViewDefinition:
    """The definition with the queries of the views that its query names."""
    by_name = {each.definition.name: each for each in views}
    for name in names:
        upstream = by_name.get(name.name.lower())
        if upstream is None:
            continue
        view.file.invalid_fields.update(upstream.invalid_fields)
        if why := why_not_readable(upstream.definition, view.definition):
            view.report_name(name, why)
    above = {each.name: each for found in views for each in (*found.above, found.as_upstream)}
    own = view.own_tables
    reads = [EVENTS if each.name.lower() in own else each.name.lower() for each in names]
    direct = tuple(each for each in dict.fromkeys(reads) if each in by_name or each in sources)
    return replace(view.definition, views=tuple(above.values()), reads_directly=direct)


def _report_ambiguous(view: UnresolvedView, known: KnownSources, names_of_views: Collection[str]) -> None:
    """Reports names that mean a view, and also a source or a topic of the view."""
    for each in view.names or ():
        name = each.name.lower()
        if name not in names_of_views or name in (view.definition.name, EVENTS):
            continue
        if name in view.own_tables:
            instead = f"FROM {EVENTS}"
            if len(view.definition.topics) > 1:
                topic = next(topic for topic in view.definition.topics if topic.lower() == name)
                instead += f" WHERE _topic = '{topic}'"
            message = f"{each.name} is a topic of this view, and also a view: write {instead}, or rename the view"
            view.report_name(each, message)
        elif name in known.by_name:
            files = f"{known.by_name[name].file} and views/{name}.toml"
            view.report_name(each, f"{each.name} is a source and also a view ({files}): rename one of them")


def _report_unknown(view: UnresolvedView, names: list[TableName], known: Collection[str]) -> None:
    for each in names:
        name = each.name
        if name.lower() in known:
            continue
        hint = did_you_mean(name, known) or f"; write sources/{name}.toml"
        message = f"there is no table {name}{hint}"
        if name.lower() == view.definition.name:
            message = f"the view {name} cannot read itself: name a source or another view"
        elif name.lower() == EVENTS and not view.has_own:
            hint = ", because the view has no topics of its own: write FROM and the name of a source"
            message = f"there is no table {name}{hint}"
        view.report_name(each, message)
    if not names:
        view.file.report("the query names no source: write FROM and the name of a source", "query")


def _inlined(definition: ViewDefinition, source: SourceDefinition) -> ViewDefinition:
    # A Lambda view never drops late events, so the watermark of its source has no meaning for it.
    watermark = definition.watermark or (source.watermark if definition.architecture == "kappa" else None)
    return replace(
        definition,
        topics=source.topics,
        pattern=source.pattern,
        decode=source.decode,
        watermark=watermark,
        dead_letters=definition.dead_letters or source.dead_letters,
        source_name=source.name,
        source_file=source.file,
        source_lines=source.lines,
    )


def _over_sources(definition: ViewDefinition, file: TomlFile, sources: tuple[SourceDefinition, ...]) -> ViewDefinition:
    if definition.watermark:
        file.report("a view over several sources has no [watermark] of its own: set it in sources/NAME.toml",
                    "watermark")  # fmt: skip
    if definition.kappa.start != "earliest" and (tables := [each.name for each in sources if each.is_table]):
        file.report(
            f'kappa.start must be "earliest", because the rows of {tables[0]} are the newest of all its records',
            "kappa", "start",
        )  # fmt: skip
    dead_letters = definition.dead_letters
    return replace(
        definition,
        topics=(),
        pattern="",
        watermark=None,
        sources=tuple(replace(each, dead_letters=each.dead_letters or dead_letters) for each in sources),
    )
