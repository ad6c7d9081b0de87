"""The page SQL: answers, charts, limits, downloads, and that statements only read."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from console_harness import Elements
from views_project import HOSTILE

ALL = "SELECT page, clicks FROM pages ORDER BY clicks DESC"


async def ask(console, sql: str, more: str = ""):
    return await console.json(f"/api/sql?sql={quote(sql)}{more}")


async def test_an_answer_is_a_table_and_a_chart_as_of_offsets(console):
    found = await ask(console, ALL)
    assert found["answer"]["rows"] == [["home", 3], [HOSTILE, 2], ["about", 1]]
    (as_of,) = found["answer"]["as_of"]
    assert (as_of["view"], as_of["version"]) == ("pages", 1)
    assert as_of["offsets"] == [{"topic": "clicks", "partition": 0, "offset": 5}]
    assert found["tables"] == {"pages": ["page", "clicks"]}
    html = await console.page(f"/sql?sql={quote(ALL)}")
    assert "<script>alert" not in html
    assert len([each for each in Elements(html).named("rect") if each["class"] == "bar"]) == 3


async def test_rows_are_limited_and_statements_are_kept_in_the_session(console):
    await console.page("/sql")
    found = await ask(console, ALL, "&rows=1")
    assert (len(found["answer"]["rows"]), found["answer"]["is_truncated"]) == (1, True)
    await ask(console, "SELECT 1")
    assert (await console.json("/api/sql"))["history"] == ["SELECT 1", ALL]


@pytest.mark.parametrize(
    "sql", ["DELETE FROM pages__v1", "DROP TABLE pages__v1", "PRAGMA query_only = 0", "SELECT 1; SELECT 2", "nope"]
)
async def test_statements_only_read(console, project, sql):
    found = await ask(console, sql)
    assert found["answer"] is None
    assert found["problem"]
    assert len((await ask(console, "SELECT * FROM pages"))["answer"]["rows"]) == 3


async def test_a_statement_that_takes_too_long_is_stopped(console):
    sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    assert "more than 50 ms" in (await ask(console, sql, "&timeout_ms=50"))["problem"]


async def test_downloads(console):
    answer = await console.get(f"/sql/download?sql={quote(ALL)}")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="answer.csv"'
    assert answer.text.splitlines() == ["page,clicks", "home,3", f"{HOSTILE},2", "about,1"]
    import pyarrow as pa

    arrow = await console.get(f"/sql/download?format=arrow&sql={quote(ALL)}")
    assert pa.ipc.open_stream(arrow.content).read_all().column("clicks").to_pylist() == [3, 2, 1]
    assert (await console.get("/sql/download?sql=DROP+TABLE+x")).status_code == 422
    assert (await console.get("/sql/download")).status_code == 422
