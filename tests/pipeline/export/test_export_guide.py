"""Runs the code of docs/export.md on an exported view, and compares its table of settings with the code."""

import re
from pathlib import Path

from changes_harness import FakeView

from headrace.pipeline.export.exporter import Exporter
from headrace.pipeline.project.definition import Export
from headrace.pipeline.serving.database import Database
from headrace.testing.clock import ManualClock

GUIDE = (Path(__file__).parents[3] / "docs" / "export.md").read_text(encoding="utf-8")


def test_the_code_of_the_guide_reads_rows_and_offsets(sqlite_url, tmp_path, monkeypatch, capsys):
    database = Database(sqlite_url)
    FakeView(database).commit([("shop", 2), ("home", 1)])
    (path,) = re.findall(r'^path = "(.*)"$', GUIDE, re.MULTILINE)
    assert Exporter(database, ManualClock(), tmp_path, "pages", Export(path)).run() is True
    database.close()
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL):
        exec(code, {})
    assert capsys.readouterr().out == "[('home', 1), ('shop', 2)]\n0 pages 1 {'clicks': {'0': 1}}\n"


def test_the_table_of_settings_has_the_defaults_of_the_code():
    standard = Export("folder")
    assert f"| `[export] every` | `{standard.every_ms // 60_000} minute` |" in GUIDE
    assert f"| `[export] keep` | `{standard.keep_hours} hour` |" in GUIDE
