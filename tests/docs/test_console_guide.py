"""Runs the Python example of docs/console.md, and compares the guide's facts with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Broker
from headrace.console.actions.table import ACTIONS
from headrace.console.history import store
from headrace.console.pages.listing import MOST_ROWS
from headrace.console.pages.table import PAGES
from headrace.console.protection import sessions
from headrace.console.records import criteria, decoding, downloads, rows, searches, tail

sys.path.insert(0, str(Path(__file__).parents[1] / "console"))

from console_process import ConsoleProcess

TEXT = (Path(__file__).parents[2] / "docs" / "console.md").read_text(encoding="utf-8")
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_runs(tmp_path: Path) -> None:
    (example,) = _PYTHON.findall(TEXT)
    with Broker() as broker, ConsoleProcess(broker.bootstrap_servers, tmp_path) as console:
        program = example.replace("http://127.0.0.1:8080", console.url)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["The topic clicks was created.", "[('clicks', 3)]"], "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_the_guide_names_each_page(page) -> None:
    assert f"| `{page.path}` | `{page.api_path}` |" in TEXT


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_the_guide_names_each_action(action) -> None:
    first_cells = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    assert any(f"`{action.name}`" in cell for cell in first_cells)


def test_the_limits_are_those_of_the_code() -> None:
    assert f"at most {sessions.MOST_SESSIONS}" in TEXT
    assert (
        f"{sessions.IDLE_MS // 3_600_000} hours without a request or {sessions.LONGEST_MS // 3_600_000} hours" in TEXT
    )
    assert f"at most {MOST_ROWS} rows" in TEXT
    assert f"at most {store.MOST_ROWS_IN_FILE:,} rows" in TEXT
    assert f"{store.MOST_ROWS_IN_MEMORY:,} rows" in TEXT


def test_the_limits_of_records_are_those_of_the_code() -> None:
    facts = (
        f"first {rows.IN_LIST:,} characters", f"page of a record {rows.ALONE:,}",
        f"At most {searches.MOST_RUNNING} searches",
        f"and {searches.MOST_RUNNING_PER_SESSION} of one session", f"at most {criteria.MOST_SECONDS} seconds or "
        f"{criteria.MOST_RESULTS:,} records", f"up to {downloads.MOST_RECORDS:,} records and "
        f"{downloads.MOST_BYTES // 2**20} MB", f"more than {tail.MOST_BEHIND:,} records",
        f"larger than {decoding.LARGEST_DOCUMENT_BYTES // 1_000_000} MB",
    )  # fmt: skip
    text = " ".join(TEXT.split())
    assert [fact for fact in facts if fact not in text] == []
