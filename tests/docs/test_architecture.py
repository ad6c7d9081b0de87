"""Checks that ARCHITECTURE.md names files and packages that exist."""

import re
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
