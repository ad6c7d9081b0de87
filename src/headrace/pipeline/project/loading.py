"""Loads a project from its folder: ``headrace.toml``, one file per view in ``views/``, one per source in ``sources/``.

``read_project`` reads every file and collects every problem that the files alone show. ``load_settings`` reads only
``headrace.toml``, and raises if it has a problem. Neither needs Spark; ``query.project_checks`` adds the problems that
only Spark and the broker can find.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.pipeline.project.decode import Decode
from headrace.pipeline.project.resolution import KnownSources, UnresolvedView
from headrace.pipeline.project.settings import Project, read_settings
from headrace.pipeline.project.source_definition import EVENTS, SourceDefinition
from headrace.pipeline.project.source_file import read_source
from headrace.pipeline.project.toml_files import Problem, ProjectError, TomlFile
from headrace.pipeline.project.view_file import ViewFile
from headrace.pipeline.project.views_on_views.name_lookup import resolve_all

VIEWS_FOLDER, SOURCES_FOLDER = "views", "sources"


@dataclass(frozen=True)
class Draft:
    """A project as far as its files can be used, and all problems of the files.

    :param project: has each view whose file is valid TOML. A field with a problem has its default, or is empty.
    :param settings: the file ``headrace.toml``.
    :param invalid_fields: for each view, the fields and tables that have a problem.
    """

    project: Project
    settings: TomlFile
    problems: list[Problem]
    invalid_fields: Mapping[str, Collection[str]]


def read_project(folder: str | Path) -> Draft:
    """
    :raises ProjectError: if the folder has no ``headrace.toml``.
    """
    folder, settings, project = read_settings(folder)
    problems = list(settings.problems)
    known = _read_sources(folder, problems)
    paths = sorted((folder / VIEWS_FOLDER).glob("*.toml"))
    names = frozenset(path.stem for path in paths)
    unresolved: dict[str, UnresolvedView] = {}
    files = [TomlFile.read(path) for path in paths]
    for file in files:
        if not file.problems:
            unresolved[file.path.stem] = ViewFile(folder, file, known, names).unresolved()
    views = resolve_all(unresolved, known, names)
    problems += [problem for file in files for problem in file.problems]
    invalid_fields = {name: view.file.invalid_fields for name, view in unresolved.items()}
    sources = {source.name: source for source in known.by_name.values()}
    return Draft(replace(project, views=views, sources=sources), settings, problems, invalid_fields)


def _read_sources(folder: Path, problems: list[Problem]) -> KnownSources:
    by_name: dict[str, SourceDefinition] = {}
    invalid_fields: dict[str, Collection[str]] = {}
    for path in sorted((folder / SOURCES_FOLDER).glob("*.toml")):
        file, name = TomlFile.read(path), path.stem.lower()
        if name in by_name:
            file.report(f"{by_name[name].file} has the same name, because SQL ignores the case of names: rename one")
        elif file.problems:  # Not TOML. Views that name the source cannot be checked.
            by_name[name] = SourceDefinition(path.stem, EVENTS, (), "", Decode(), file=path.relative_to(folder))
            invalid_fields[name] = ("topics", "decode")
        else:
            by_name[name] = read_source(folder, file)
            invalid_fields[name] = file.invalid_fields
        problems += file.problems
    return KnownSources(by_name, invalid_fields)


def load_settings(folder: str | Path) -> Project:
    """A project without its views, so that a mistake in the file of one view does not block the other views.

    :raises ProjectError: with all problems.
    """
    _, settings, project = read_settings(folder)
    if settings.problems:
        raise ProjectError(settings.problems)
    return project
