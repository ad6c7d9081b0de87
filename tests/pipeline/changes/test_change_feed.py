"""The change feed over real HTTP: a snapshot, then changes; nothing lost or doubled when a reader comes back."""

import http.client
import json
import socket
import threading
import time
from typing import ClassVar

import pyarrow as pa
import pytest
from changes_harness import FakeView

from headrace.http_endpoints.access import Access
from headrace.http_endpoints.protection import Protection
from headrace.pipeline.changes import feed as feed_module
from headrace.pipeline.changes import http as http_module
from headrace.pipeline.changes.events import Position
from headrace.pipeline.changes.http import FeedServer
from headrace.pipeline.project.definition import ChangeSettings


class Reader:
    """A client of a change feed that keeps the rows of the view."""

    opened: ClassVar = []

    def __init__(self, port, view="pages", last_event_id="", headers=()):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        given = {"Last-Event-ID": last_event_id} if last_event_id else {}
        self._connection.request("GET", f"/views/{view}/changes", headers={**given, **dict(headers)})
        self.response = self._connection.getresponse()
        self.rows, self.last_id, self.log = {}, last_event_id, []
        self.opened.append(self)

    def event(self):
        """The next event; None at the end. Heartbeats are left out."""
        fields = {}
        while True:
            raw = self.response.readline()
            line = raw.decode().rstrip("\n")
            if not raw:
                return None
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                break
            else:
                fields = {}
        self.last_id = fields.get("id", self.last_id)
        return fields["event"], json.loads(fields["data"])

    def until(self, wanted):
        """Reads up to the first event of this kind, and applies all events."""
        while True:
            found = self.event()
            assert found is not None, f"the feed ended before an event {wanted}"
            name, data = found
            self.log.append(name)
            if name == "begin":
                self.rows = {}
            elif name == "row":
                self.rows[data["row"]["page"]] = data["row"]["clicks"]
            elif name == "change":
                before, after = data["before"], data["after"]
                assert self.rows.get((before or {}).get("page")) == (before or {}).get("clicks"), "doubled or lost"
                if before:
                    del self.rows[before["page"]]
                if after:
                    self.rows[after["page"]] = after["clicks"]
            if name == wanted:
                return data

    def changes(self, count):
        return [self.until("change") for _ in range(count)]

    def close(self):
        self.response.close()
        self._connection.close()


@pytest.fixture(autouse=True)
def _readers_are_closed():
    yield
    while Reader.opened:
        Reader.opened.pop().close()


@pytest.fixture
def view(database):
    made = FakeView(database)
    made.commit([("home", 1), ("shop", 2)])
    made.step()
    return made


@pytest.fixture
def serve(database_url):
    running = []

    def start(**options):
        server = FeedServer(database_url, **options)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


def test_a_reader_gets_a_snapshot_and_then_every_change_with_its_as_of(view, serve):
    reader = Reader(serve().port)
    assert reader.response.getheader("content-type").startswith("text/event-stream")
    ready = reader.until("ready")
    assert (reader.rows, ready["rows"], ready["key"]) == ({"home": 1, "shop": 2}, 2, ["page"])
    assert ready["as_of"][0]["offsets"] == {"clicks": {"0": 1}}
    view.commit([("home", 3), ("tea", 1)])
    view.step()
    first, second, third = reader.changes(3)
    assert (first["op"], first["key"], first["before"], first["after"]) == (
        "update", {"page": "home"}, {"page": "home", "clicks": 1}, {"page": "home", "clicks": 3},
    )  # fmt: skip
    assert (second["op"], second["after"], third["op"], third["before"]) == (
        "delete", None, "insert", None,
    )  # fmt: skip
    assert [each["last_of_step"] for each in (first, second, third)] == [False, False, True]
    assert all(each["as_of"] == [{**each["as_of"][0], "version": 1, "offsets": {"clicks": {"0": 2}}}]
               for each in (first, second, third))  # fmt: skip
    assert reader.rows == {"home": 3, "tea": 1}
    reader.close()


def test_a_reader_resumes_after_every_event_across_servers_and_versions(view, serve):
    server = serve()
    reader = Reader(server.port)
    reader.until("ready")
    rows, last_id = reader.rows, reader.last_id
    reader.close()
    for number in range(1, 6):
        if number == 3:
            view.add_version()
            server.stop()
            server = serve()
        view.commit([("home", number), ("shop", number), (f"p{number}", 0)], switch=True)
        view.step()
        reader = Reader(server.port, last_event_id=last_id)
        reader.rows = rows
        reader.changes(1)  # the connection breaks within a step
        rows, last_id = reader.rows, reader.last_id
        reader.close()
    reader = Reader(server.port, last_event_id=last_id)
    reader.rows = rows
    while reader.rows != {"home": 5, "shop": 5, "p5": 0}:
        reader.until("change")
    assert "begin" not in reader.log
    assert Position.parse(reader.last_id).seq == view.step().last_seq
    reader.close()


@pytest.mark.parametrize("what", ["trimmed", "another stream", "nonsense"])
def test_a_reader_that_cannot_resume_is_told_and_gets_a_snapshot(view, serve, what):
    view.settings = ChangeSettings(keep_changes=2)
    reader = Reader(serve().port)
    reader.until("ready")
    reader.close()
    last_id = "nonsense" if what == "nonsense" else reader.last_id
    if what == "another stream":
        view.add_version(pa.schema([("page", pa.string()), ("clicks", pa.int32())]))
    for clicks in (7, 8, 9):
        view.commit([("home", clicks), ("shop", 2)], switch=True)
        view.step()
    back = Reader(serve().port, last_event_id=last_id)
    reason = back.until("begin")["reason"]
    gone = "the changes after your last event are not kept any more, or the columns of the view changed"
    assert reason == ("this id is none of this view" if what == "nonsense" else gone)
    back.until("ready")
    assert back.rows == {"home": 9, "shop": 2}
    back.close()


def test_a_connected_reader_gets_a_new_snapshot_when_the_columns_change(view, serve):
    reader = Reader(serve().port)
    reader.until("ready")
    view.add_version(pa.schema([("page", pa.string()), ("clicks", pa.string())]))
    view.commit([("home", "many")], switch=True)
    view.step()
    reader.until("ready")
    assert reader.rows == {"home": "many"}
    reader.close()


def test_a_view_becomes_followed_when_its_first_reader_asks(database, serve):
    view = FakeView(database)
    view.commit([("home", 1)])
    server = serve()
    found = []
    thread = threading.Thread(target=lambda: found.append(Reader(server.port)))
    thread.start()
    while not view.outbox.leases():
        time.sleep(0.01)
    view.step()
    thread.join(20)
    found[0].until("ready")
    assert found[0].rows == {"home": 1}
    found[0].close()


def test_what_cannot_be_followed_is_an_error_before_the_first_event(view, serve):
    server = serve()
    server.feed._settings = feed_module._Settings(first_step_s=0.2)
    unknown = Reader(server.port, "nothing").response
    assert (unknown.status, json.loads(unknown.read())["error"]) == (
        404,
        "there is no view 'nothing': GET /views lists the views",
    )
    FakeView(view.database, name="idle")
    idle = Reader(server.port, "idle").response
    body = json.loads(idle.read())
    assert (idle.status, idle.getheader("Retry-After"), body["kind"]) == (503, "5", "not_followed")
    assert "'headrace views run' has to run" in body["error"]
    server.feed._max_readers = 0
    full = Reader(server.port).response
    assert (full.status, json.loads(full.read())["kind"]) == (503, "too_many_readers")


def test_the_feed_has_the_protection_of_the_other_routes(view, serve):
    server = serve(protection=Protection(access=Access(bearer_token="open")))
    assert Reader(server.port).response.status == 401
    reader = Reader(server.port, headers={"Authorization": "Bearer open"})
    reader.until("ready")
    reader.close()


def test_heartbeats_keep_a_quiet_connection_open_and_readers_are_told_of_the_end(view, serve):
    server = serve()
    server.feed._settings = feed_module._Settings(heartbeat_s=0.05)
    reader = Reader(server.port)
    reader.until("ready")
    assert reader.response.readline() == b": heartbeat\n"
    server.stop()
    assert reader.until("bye") == {"reason": "the server stops"}
    assert reader.event() is None


def test_a_reader_that_takes_nothing_is_disconnected_and_can_resume(database, serve, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(http_module, "_SEND_S", 0.2)
    view = FakeView(database)
    view.commit([("x" * 1000 + str(n), n) for n in range(8000)])
    view.step()
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b"GET /views/pages/changes HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.settimeout(20)
        assert slow.recv(12) == b"HTTP/1.1 200"
        while "took nothing for 0.2 s and is disconnected" not in caplog.text:
            time.sleep(0.01)
        while server.feed._readers > 0:
            time.sleep(0.01)
    quick = Reader(server.port)
    assert quick.until("ready")["rows"] == 8000
    quick.close()


def test_many_readers_get_the_same_events_in_order(view, serve):
    server = serve()
    readers = [Reader(server.port) for _ in range(8)]
    for reader in readers:
        reader.until("ready")
    for clicks in range(10, 40):
        view.commit([("home", clicks)])
        view.step()
    for reader in readers:
        while reader.rows != {"home": 39}:
            reader.until("change")
        assert reader.log.count("change") == 31
        reader.close()
