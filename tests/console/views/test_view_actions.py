"""The actions on views: preview, the change in the catalog, the command line, and the audit log."""

from __future__ import annotations

import json
import subprocess
import sys

from console_harness import Elements

from headrace import Admin, Producer


async def test_readers_are_switched_after_a_preview(console, project):
    asked = await console.submit("switch-view", view="pages", version="2")
    page = Elements(asked.text)
    assert "pagesv1v2" in page.text.replace(" ", "")
    assert f"headrace views switch pages 2 --project {project.folder}" in page.text
    assert project.serving() == 1
    done = await console.submit("switch-view", step="run", view="pages", version="2")
    assert (done.status_code, done.headers["location"]) == (303, "/views/pages")
    assert project.serving() == 2
    assert "pages v2 serves from now on." in await console.page("/views/pages")
    assert [(line["action"], line["outcome"]) for line in console.audit_lines()] == [
        ("switch-view", "begun"),
        ("switch-view", "done"),
    ]
    assert (await console.call("rollback-view", view="pages")).json()["message"] == "pages v1 serves from now on."
    assert project.serving() == 1


async def test_a_change_that_the_catalog_refuses_changes_nothing(console, project):
    answer = await console.call("rollback-view", view="pages")
    assert (answer.status_code, answer.json()["error"]) == (409, "change_refused")
    assert (await console.call("drop-view", view="pages", version=1)).status_code == 409
    assert (await console.call("switch-view", view="nope")).status_code == 404
    batch = await console.call("run-view-batch", view="pages")
    assert (batch.status_code, batch.json()["error"]) == (409, "not_running")
    assert project.serving() == 1


async def test_a_view_is_dropped_only_if_its_name_is_typed(console, project):
    assert (await console.submit("drop-view", view="pages", step="run", typed="x")).status_code == 422
    assert project.serving() == 1
    assert (await console.submit("drop-view", view="pages", step="run", typed="pages")).status_code == 303
    assert project.serving() is None
    assert {str(version.desired_state) for version in project.catalog.versions("pages")} == {"drop"}


async def test_a_console_that_only_reads_changes_no_view(open_console, project):
    console = await open_console(project=project.folder, is_read_only=True)
    assert (await console.call("switch-view", view="pages", version=2)).status_code == 403
    assert project.serving() == 1


async def test_a_dead_letter_is_sent_to_where_it_came_from(console, project, broker):
    notes = {"reason": "n: not a number", "view": "pages", "topic": "clicks", "partition": "1", "offset": "7"}
    notes["timestamp"] = "1000000"
    letters = {
        "good": notes,
        "no letter": {"reason": "x"},
        "left out": notes | {"left_out": "9"},
        "not of the view": notes | {"topic": "dead"},
    }
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for topic, partitions in (("clicks", 2), ("dead", 1)):
            admin.create_topic(topic, num_partitions=partitions)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for key, headers in letters.items():
            named = {"trace": b"t"} | {f"headrace.{name}": text.encode() for name, text in headers.items()}
            producer.send("dead", key=key.encode(), value=b"{bad", headers=named)
    page = Elements(await console.page("/views/pages"))
    form = "/actions/replay-dead-letter?view=pages&topic=dead&partition=0&offset=0"
    assert form in [each["href"] for each in page.named("a")]
    fields = {"view": "pages", "topic": "dead", "partition": "0"}
    asked = await console.submit("replay-dead-letter", **fields, offset="0", value='{"page": "home"}')
    assert "n: not a number" in Elements(asked.text).text
    done = await console.submit("replay-dead-letter", **fields, offset="0", value='{"page": "home"}', step="run")
    assert (done.status_code, done.headers["location"]) == (303, "/topics/clicks/records/1/0")
    row = (await console.json("/api/topics/clicks/records/1/0"))["record"]
    assert (row["key"]["text"], row["timestamp_ms"], [each["name"] for each in row["headers"]]) == (
        "good",
        1_000_000,
        ["trace"],
    )
    assert json.loads(row["value"]["text"]) == {"page": "home"}
    same = await console.call("replay-dead-letter", **fields, offset=0)
    assert same.json()["location"] == "/topics/clicks/records/1/1"
    assert (await console.json("/api/topics/clicks/records/1/1"))["record"]["value"]["text"] == "{bad"
    for offset in (1, 2, 3):
        assert (await console.call("replay-dead-letter", **fields, offset=offset)).status_code == 403
    assert (await console.call("replay-dead-letter", **fields, offset=9)).status_code == 422


def test_the_console_imports_neither_spark_nor_arrow(project):
    program = """
import asyncio, sys
from pathlib import Path
from headrace.console.application import build_application
from headrace.console.views.project import ViewsProject
from headrace.runtime.clock import SystemClock
at_start = [name for name in ("sqlalchemy", "pyarrow", "pyspark") if name in sys.modules]
async def main():
    project = ViewsProject(Path(sys.argv[1]), SystemClock())
    def work(opened):
        from headrace.console.views.answers import answer_differences, run_statement
        from headrace.console.views.definitions import read_definitions
        from headrace.console.views.status import read_status
        import headrace.console.views.log_records, headrace.pipeline.management.changing
        read_definitions(opened, "pages")
        answer_differences(opened, *opened.here.catalog.versions("pages"))
        run_statement(opened, "SELECT 1", limit=1, timeout_ms=1000)
        return read_status(opened, str)
    assert (await project.ask(work)).views
    await project.close()
asyncio.run(main())
print(at_start, [name for name in ("pyarrow", "pyspark") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", program, str(project.folder)], capture_output=True, text=True)
    assert found.stdout.strip() == "[] []", found.stderr
