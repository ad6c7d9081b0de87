"""Checks that ARCHITECTURE.md names files and packages that exist."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FILE = re.compile(r"(?<![\w/.])((?:[a-z_]+/)+[a-z_]+\.py)\b")
_PACKAGE = re.compile(r"^ {2}(\w+)/ ", re.MULTILINE)


PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_every_file_that_the_page_names_exists() -> None:
    files = sorted(set(_FILE.findall(PAGE)))
    missing = [name for name in files if not (ROOT / "src/headrace" / name).exists() and not (ROOT / name).exists()]
    assert missing == []
    assert len(files) > 10


def test_the_drawing_has_every_package() -> None:
    drawing = PAGE.split("```")[1]
    packages = {path.parent.name for path in (ROOT / "src/headrace").glob("*/__init__.py")}
    assert set(_PACKAGE.findall(drawing)) == packages


def test_the_drawing_has_every_package_of_the_second_level() -> None:
    """Commands are listed by ``headrace --help``; the packages of ``tools`` are their helpers."""
    drawn, leading = set(), set()
    for section in re.split(r"^ {2}(?=\w)", PAGE.split("```")[1], flags=re.MULTILINE):
        top = section.partition("/")[0]
        drawn |= {f"{top}/{name}" for name in re.findall(r"\b(\w+)/(?=[ ,:])", section)}
        leading |= {f"{top}/{name}" for name in re.findall(r"^ {4}(\w+)/", section, flags=re.MULTILINE)}
    folders = {path.parent for path in (ROOT / "src/headrace").glob("*/*/__init__.py")}
    packages = {f"{folder.parent.name}/{folder.name}" for folder in folders if folder.parent.name != "tools"}
    assert packages - drawn == set()
    assert leading - packages == set()


def test_the_pipeline_lists_its_packages_in_the_order_of_its_layers() -> None:
    text = ast.get_docstring(ast.parse((ROOT / "src/headrace/pipeline/__init__.py").read_text(encoding="utf-8")))
    rows = re.findall(r"^ {4}(\w+(?:, \w+)*)  ", text or "", flags=re.MULTILINE)
    listed = [name for row in rows for name in row.split(", ")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [contract["layers"] for contract in contracts if contract["name"] == "Layers of the pipeline"]
    for layer in layers:
        names = layer.split(" | ")
        assert sorted(listed[: len(names)]) == sorted(names)
        del listed[: len(names)]
    assert listed == []
