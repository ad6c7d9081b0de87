"""Checks that docs/request-paths.md names functions that exist, and has the seven walks, each with a diagram."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "request-paths.md").read_text(encoding="utf-8")
#: A file, followed by a function, a method or a class of that file.
_NAMED = re.compile(r"`([\w/]+\.py)`\s+`([\w.]+)`")
#: A method with its class, without the file: in the text, and in a diagram.
_METHOD = re.compile(r"\b([A-Z]\w+)\.(\w+)\b")
_IN_TEXT = re.compile(rf"`{_METHOD.pattern}")
_DIAGRAM = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)


def names_of(path: Path) -> set[str]:
    """The functions, classes and methods of a module, as ``Class.method``."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


@pytest.mark.parametrize(("file", "name"), sorted(set(_NAMED.findall(PAGE))))
def test_every_function_on_the_page_exists(file: str, name: str) -> None:
    path = ROOT / "src" / "headrace" / file
    assert path.exists(), f"there is no src/headrace/{file}"
    assert name in names_of(path), f"src/headrace/{file} has no {name}"


def methods_by_class() -> dict[str, set[str]]:
    """The methods of all classes, by the name of the class. Two classes of one name count as one."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "src" / "headrace").rglob("*.py"):
        for name in names_of(path):
            owner, _, method = name.partition(".")
            found.setdefault(owner, set()).add(method)
    return found


def test_every_method_in_the_text_and_in_the_diagrams_exists() -> None:
    in_text = set(_IN_TEXT.findall(PAGE))
    in_diagrams = {method for diagram in _DIAGRAM.findall(PAGE) for method in _METHOD.findall(diagram)}
    known = methods_by_class()
    assert [
        f"{owner}.{name}" for owner, name in sorted(in_text | in_diagrams) if name not in known.get(owner, ())
    ] == []
    assert len(in_text) > 50
    assert len(in_diagrams) > 10


def test_every_file_on_the_page_exists() -> None:
    files = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    missing = sorted(
        file for file in files if not (ROOT / "src" / "headrace" / file).exists() and not (ROOT / file).exists()
    )
    assert missing == []
    assert len(files) > 40


def test_each_of_the_seven_walks_has_a_diagram_and_functions() -> None:
    walks = PAGE.split("\n## ")[1:]
    assert len(walks) == 7
    for walk in walks:
        assert walk.count("```mermaid") == 1
        assert len(_NAMED.findall(walk)) >= 7
