"""The examples of the guide to sources: the files are read, and the query gives the answer that the guide shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

from source_harness import Log

from headrace.pipeline.project.loading import read_project
from headrace.pipeline.query.view_query import build

GUIDE = Path(__file__).parents[2] / "docs" / "sources.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(language: str) -> list[str]:
    return [text for kind, text in _BLOCK.findall(GUIDE.read_text(encoding="utf-8")) if kind == language]


def _write_project(folder: Path) -> None:
    (folder / "headrace.toml").write_text("")
    for text in _blocks("toml") + _blocks("sql"):
        name = re.match(r"(?:#|--) (\S+)", text)[1]
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def test_the_files_of_the_guide_are_valid(tmp_path):
    _write_project(tmp_path)
    draft = read_project(tmp_path)
    assert draft.problems == []
    kinds = {source.name: source.kind for source in draft.project.sources.values()}
    assert kinds == {"orders": "events", "customers": "table", "accounts": "changes"}
    assert [source.name for source in draft.project.views["sales"].sources] == ["orders", "customers"]


def test_the_answer_of_the_guide(spark, tmp_path):
    _write_project(tmp_path)
    log = Log(spark)
    (records,), (answer,) = _blocks("text"), _blocks("json")
    for line in records.splitlines():
        topic, *rest = line.split(maxsplit=2)
        log.add(topic, *(None if each == "-" else each.encode() for each in rest))
    view = read_project(tmp_path).project.views["sales"]
    assert [list(row) for row in build(spark, view, log.frame()).collect()] == json.loads(answer)
