"""Checks that ARCHITECTURE.md and CONTRIBUTING.md name files and packages that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FILE = re.compile(r"(?<![\w/.])((?:[a-z_]+/)+[a-z_]+\.py)\b")
_PACKAGE = re.compile(r"^ {2}(\w+)/ ", re.MULTILINE)


def files_in(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return sorted({name for name in _FILE.findall(text) if "NAME" not in name})


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_the_page_names_exists(page: str) -> None:
    files = files_in(page)
    missing = [name for name in files if not (ROOT / "src/headrace" / name).exists() and not (ROOT / name).exists()]
    assert missing == []
    assert files


def test_the_drawing_has_every_package() -> None:
    drawing = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split("```")[1]
    packages = {path.parent.name for path in (ROOT / "src/headrace").glob("*/__init__.py")}
    assert set(_PACKAGE.findall(drawing)) == packages
