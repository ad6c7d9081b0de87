"""Finds the sources that a view's query names, and makes them part of the view's definition.

A name in FROM is looked up without regard to case: first among the view's own tables (``events`` and the view's
topics, if its file has topics and [decode]), then among the sources of the project.

===================================  ================================================================================
the query names                      the definition
===================================  ================================================================================
only the view's own tables           stays as it is
one source of kind ``events``        gets the source's topics, decoding and watermark as its own
anything else                        gets ``sources``; the view's own records are one of them, named ``events``
===================================  ================================================================================

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


@dataclass(frozen=True)
class KnownSources:
    """The sources of a project.

    :param by_name: by their names in lower case.
    :param invalid_fields: for each source with problems in its file, by its name in lower case, the invalid fields.
    """

    by_name: Mapping[str, SourceDefinition]
    invalid_fields: Mapping[str, Collection[str]]


def with_sources(
    definition: ViewDefinition, file: TomlFile, known: KnownSources, listed: tuple[str, ...], *, has_own: bool
) -> ViewDefinition:
    """
    :param file: the view's file, which gets the problems.
    :param listed: the field ``sources`` of the file.
    :param has_own: whether the file has topics and decoding of its own.
    """
    names = _names(definition, file, listed, has_own=has_own)
    if names is None:
        return definition
    own = {EVENTS, *(topic.lower() for topic in definition.topics if not definition.query.is_python)} if has_own else ()
    reads_own = any(each.name.lower() in own for each in names)
    used = [EVENTS if each.name.lower() in own else each.name.lower() for each in names]
    used = [name for name in dict.fromkeys(used) if (name == EVENTS and reads_own) or name in known.by_name]
    if not has_own or listed:
        _report_unknown(definition, file, names, {*own, *known.by_name}, has_own=has_own)
    if not any(name in known.by_name and not (name == EVENTS and reads_own) for name in used):
        return definition
    if has_own and not reads_own:
        file.report(
            "the query does not read the view's own topics: name them in FROM, or remove topics and [decode]", "query"
        )
    for name in used:
        file.invalid_fields.update(known.invalid_fields.get(name, ()))
    own_source = {EVENTS: replace(definition.own_source, name=EVENTS)} if reads_own else {}
    sources = tuple({**known.by_name, **own_source}[name] for name in used)
    if len(sources) == 1 and sources[0].kind == EVENTS:
        return _inlined(definition, sources[0])
    return _over_sources(definition, file, sources)


def _names(
    definition: ViewDefinition, file: TomlFile, listed: tuple[str, ...], *, has_own: bool
) -> list[TableName] | None:
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


def _report_unknown(
    definition: ViewDefinition, file: TomlFile, names: list[TableName], known: Collection[str], *, has_own: bool
) -> None:
    for name, line, column in names:
        if name.lower() in known:
            continue
        hint = did_you_mean(name, known) or f"; write sources/{name}.toml"
        if name.lower() == EVENTS and not has_own:
            hint = ", because the view has no topics of its own: write FROM and the name of a source"
        message = f"there is no table {name}{hint}"
        if line == file.line("sources"):
            file.report(message, "sources")
        else:
            file.add_problem(Problem(Path(definition.query.file), line, message, column), "query")
    if not names:
        file.report("the query names no source: write FROM and the name of a source", "query")


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
