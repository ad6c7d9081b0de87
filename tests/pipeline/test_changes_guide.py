"""Runs the code of docs/changes.md against a broker and a server, and compares what ``--watch`` prints."""

import re
import threading
from argparse import Namespace
from pathlib import Path

import pytest
from changes_harness import FakeView

from headrace import Broker
from headrace.pipeline.changes.http import FeedServer
from headrace.pipeline.changes.publisher import Publisher
from headrace.pipeline.changes.reading import ChangeReader
from headrace.pipeline.project.definition import ChangeSettings, Publish
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.queries.query import QueryService
from headrace.runtime.clock import SystemClock
from headrace.tools.query import watch as query_watch

GUIDE = (Path(__file__).parents[2] / "docs" / "changes.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [block[2] for block in _BLOCK.finditer(GUIDE) if block[1] == kind]


@pytest.fixture
def view(sqlite_url):
    database = Database(sqlite_url)
    made = FakeView(database)
    made.commit([("home", 1), ("shop", 2)])
    made.step()
    yield made
    database.close()


def test_a_consumer_builds_the_table_from_the_topic(view, sqlite_url, capsys):
    code, _ = blocks("python")
    reader = ChangeReader(sqlite_url)
    with Broker() as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        publisher = Publisher(view.database, reader, SystemClock(), client, "pages", Publish("pages-changes"))
        assert publisher.advance() is True
        exec(code.replace("127.0.0.1:9092", broker.bootstrap_servers), {})
        publisher.close()
    reader.close()
    assert capsys.readouterr().out == "[('home', 1), ('shop', 2)]\n"


def test_a_reader_of_the_feed_keeps_the_rows(view, sqlite_url, capsys):
    _, code = blocks("python")
    server = FeedServer(sqlite_url)
    serving = threading.Thread(target=server.run)
    serving.start()

    is_read = threading.Event()

    def commit():
        clicks = 2
        while not is_read.wait(0.05):
            view.commit([("home", clicks), ("tea", 1)])
            view.step()
            clicks += 1

    committing = threading.Thread(target=commit)
    committing.start()
    exec(code.replace("127.0.0.1:8090", f"127.0.0.1:{server.port}"), {})
    is_read.set()
    committing.join()
    server.stop()
    serving.join()
    assert re.fullmatch(r"\[\('home', \d+\), \('tea', 1\)\]\n", capsys.readouterr().out)


def test_watch_prints_what_the_guide_shows(view, sqlite_url, capsys, monkeypatch):
    (block,) = blocks("console")
    command, *wanted = block.splitlines()
    sql = re.search(r'"(.*)"', command)[1]
    looks = iter([lambda: view.commit([("home", 2), ("tea", 1)])])

    def wait():
        look = next(looks, None)
        return look is not None and (look() is None)

    monkeypatch.setattr(query_watch, "_wait", wait)
    service = QueryService(sqlite_url)
    query_watch.watch(service, sql, Namespace(limit=10, timeout=1000, json=False))
    service.close()
    age = re.compile(r", [\d.]+ s ago$")
    assert [age.sub("", line) for line in capsys.readouterr().out.splitlines()] == [
        age.sub("", line) for line in wanted
    ]


def test_the_table_of_settings_has_the_defaults_of_the_code():
    standard, publish = ChangeSettings(), Publish("t")
    assert f"| `[changes] keep_changes` | `{standard.keep_changes}` |" in GUIDE
    assert f"| `[changes] keep` | `{standard.keep_ms // 3_600_000} hour` |" in GUIDE
    assert f"| `[changes] always` | `{str(standard.always).lower()}` |" in GUIDE
    assert f"| `[publish] format` | `{publish.format}` |" in GUIDE
