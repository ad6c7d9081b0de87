"""Reads the files in the ``tests/`` folder of a project, TOML or YAML, with the place of every value.

PyYAML is imported when a YAML file is read. YAML's anchors are refused: a few of them can describe a document without
bounds. A file has at most ``MAX_FILE_BYTES``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from headrace.pipeline.project.toml_files import Problem, toml_problem
from headrace.pipeline.view_tests.places import Path as Place
from headrace.pipeline.view_tests.places import Places, Span, toml_places

TESTS_FOLDER = "tests"
ENDINGS = (".toml", ".yaml", ".yml")
MAX_FILE_BYTES = 4 << 20
_MAX_YAML_DEPTH = 40


@dataclass
class Document:
    """A file, and the problems found in it so far."""

    path: Path
    text: str = ""
    content: Mapping[str, Any] = field(default_factory=dict)
    places: Places = field(default_factory=Places)
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_toml(self) -> bool:
        return self.path.suffix == ".toml"

    def report(self, message: str, place: Place = ()) -> None:
        self.problems.append(Problem(self.path, self.places.line(place), message))


def files_with_tests(project: Path) -> list[Path]:
    """The files with tests of a project, in the order of their names."""
    folder = project / TESTS_FOLDER
    return sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS and path.is_file())


def read_document(path: Path) -> Document:
    document = Document(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            document.report(f"the file is larger than {MAX_FILE_BYTES >> 20} MiB: split it")
            return document
        document.text = path.read_bytes().decode()  # with its line ends, which --update keeps
    except UnicodeDecodeError:
        document.report("the file is not UTF-8")
        return document
    except OSError as error:
        document.report(f"cannot read the file: {error.strerror}")
        return document
    if document.is_toml:
        _read_toml(document)
    else:
        _read_yaml(document)
    return document


def _read_toml(document: Document) -> None:
    try:
        document.content = tomllib.loads(document.text, parse_float=Decimal)
        document.places = toml_places(document.text)
    except tomllib.TOMLDecodeError as error:
        document.problems.append(toml_problem(document.path, error))
    except RecursionError:
        document.report("the file has too many brackets within each other")


# --------------------------------------------------------------------------------------------------------------- YAML


def _read_yaml(document: Document) -> None:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        document.report("YAML needs one more package: pip install 'headrace[yaml]', or write TOML")
        return
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(document.text, yaml.SafeLoader)):
            document.report("anchors and aliases (& and *) are not allowed: write the values out")
            return
        loader = yaml.SafeLoader(document.text)
        node = loader.get_single_node()
        content = {} if node is None else loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        message = " ".join(str(getattr(error, "problem", None) or error).split())
        document.problems.append(Problem(document.path, line, f"the file is not valid YAML: {message}"))
        return
    if not isinstance(content, dict):
        document.report("the file must be a mapping: view, and tests under test")
        return
    document.content = content
    if node is not None:
        _yaml_places(document, node, ())


def _yaml_places(document: Document, node: Any, place: Place) -> None:
    places = document.places
    places.lines[place] = node.start_mark.line + 1
    places.spans[place] = Span(node.start_mark.index, node.end_mark.index)
    if len(place) > _MAX_YAML_DEPTH:
        return
    if node.id == "sequence":
        for index, item in enumerate(node.value):
            _yaml_places(document, item, (*place, index))
    elif node.id == "mapping":
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                document.problems.append(
                    Problem(document.path, key.start_mark.line + 1, f"{name!r} occurs twice: remove one")
                )
            seen.add(name)
            _yaml_places(document, value, (*place, name))
            places.lines[(*place, name)] = key.start_mark.line + 1
