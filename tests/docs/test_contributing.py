"""The files that CONTRIBUTING.md names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
#: Code with a slash or a file's ending, and without a place for a name ("NAME", "*", "_*").
NAMED = sorted(set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+|\w+\.(?:py|md|csv))`", PAGE)))


@pytest.mark.parametrize("name", [name for name in NAMED if "NAME" not in name and "/stop" not in name])
def test_a_file_that_the_page_names_exists(name):
    folders = (ROOT, ROOT / "src/headrace", ROOT / "src/headrace/broker/configs", ROOT / "src/headrace/broker/metrics")
    assert any((folder / name).exists() for folder in folders), f"there is no {name}"
