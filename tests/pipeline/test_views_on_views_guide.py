"""The examples of the guide to views on views: files, answer, plan and graph are as the guide shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from source_harness import Log

from headrace.pipeline.management.graph.model import graph_of
from headrace.pipeline.management.progress import VersionProgress
from headrace.pipeline.project.applying import apply_changes, plan_changes
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.query.view_query import build
from headrace.pipeline.serving.catalog import Catalog, Report, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.tools.shared.commands import columns
from headrace.tools.views.graph.text import text_lines

GUIDE = Path(__file__).parents[2] / "docs" / "views-on-views.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RECORDS = {"revenue": 3, "best": 5}


def _blocks(language: str) -> list[str]:
    return [text for kind, text in _BLOCK.findall(GUIDE.read_text(encoding="utf-8")) if kind == language]


def _write_project(folder: Path) -> None:
    (folder / "headrace.toml").write_text("")
    for text in _blocks("toml") + _blocks("sql"):
        name = re.match(r"(?:#|--) (\S+)", text)[1]
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def test_the_answer_of_the_guide(spark, tmp_path):
    _write_project(tmp_path)
    draft = read_project(tmp_path)
    assert draft.problems == []
    log = Log(spark)
    for line in _blocks("text")[0].splitlines():
        topic, *rest = line.split(maxsplit=2)
        log.add(topic, *(None if each == "-" else each.encode() for each in rest))
    answer = build(spark, draft.project.views["best"], log.frame()).collect()
    assert [list(row) for row in answer] == json.loads(_blocks("json")[0])


def test_the_plan_and_the_graph_of_the_guide(sqlite_url, tmp_path):
    _write_project(tmp_path)
    database = Database(sqlite_url)
    catalog = Catalog(database)
    apply_changes(database, catalog, plan_changes(read_project(tmp_path).project.views, [], []))
    for name in ("revenue", "best"):
        for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
            catalog.set_state(name, 1, event)
        with database.begin() as connection:
            catalog.switch(connection, name, 1, "SELECT 1 AS x")
    query = tmp_path / "views" / "revenue.sql"
    query.write_text(query.read_text().replace("count(*)", "max(amount)"))
    project = read_project(tmp_path).project
    changes = plan_changes(project.views, catalog.views(), catalog.versions())
    rows = [(each.view, each.kind, f"{_RECORDS[each.view]} records", each.description) for each in changes]
    shown = columns(("VIEW", "CHANGE", "REPLAYS", "WHAT WILL HAPPEN"), rows, gap=2)
    assert _blocks("text")[1].splitlines() == [line.rstrip() for line in shown]

    apply_changes(database, catalog, changes)
    for name in ("revenue", "best"):
        catalog.set_state(name, 2, VersionEvent.STARTED)
    progress = [
        VersionProgress(each, each.version == 1, None, 0, 0, Report(*each.key, complete_ms=9_000))
        if each.version == 1
        else VersionProgress(each, False, None, _RECORDS[each.view], _RECORDS[each.view], Report(*each.key))
        for each in catalog.versions()
    ]
    database.close()
    graph = graph_of(project.views, project.sources, progress, 10_000)
    assert _blocks("text")[2].splitlines() == text_lines(graph)
