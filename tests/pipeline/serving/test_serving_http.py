"""Queries over HTTP: JSON and CSV, errors as JSON, read-only."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing
from decimal import Decimal
from urllib.parse import quote

import pyarrow as pa
import pytest

from headrace.pipeline.serving.catalog import Catalog, Progress, VersionEvent
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.http.server import HttpServer
from headrace.pipeline.serving.tables import create_table, data_table, select_all
from served_view import serve_view

SCHEMA = pa.schema(
    [("page", pa.string()), ("clicks", pa.int64()), ("share", pa.decimal128(5, 2)), ("tags", pa.list_(pa.string()))]
)


def fill(database):
    catalog = Catalog(database)
    catalog.create_view("pages", "kappa", "h")
    catalog.add_version("pages", {}, "h")
    for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
        catalog.set_state("pages", 1, event)
    table = data_table("pages__v1", SCHEMA, ["page"])
    rows = pa.table([["a,b", None], [1, 2], [Decimal(1), Decimal(2)], [["x"], None]], schema=SCHEMA)
    with database.begin() as connection:
        create_table(connection, table)
        database.upsert(connection, table, rows, batch_id=1)
        catalog.set_progress(connection, Progress("pages", 1, 1, {"clicks": {0: 4}}))
        catalog.switch(connection, "pages", 1, select_all(table))


class Client:
    def __init__(self, port):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def __call__(self, path, *, method="GET", body=None, accept="*/*"):
        self._connection.request(method, path, body=body, headers={"Accept": accept})
        self.response = self._connection.getresponse()
        text = self.response.read().decode()
        is_json = self.response.getheader("content-type", "").startswith("application/json")
        return self.response.status, json.loads(text) if is_json else text

    def bytes(self, path, *, accept="*/*"):
        self._connection.request("GET", path, headers={"Accept": accept})
        self.response = self._connection.getresponse()
        assert self.response.status == 200, self.response.read()
        return self.response.read()

    def sql(self, sql, more=""):
        return self(f"/query?sql={quote(sql)}{more}")

    def close(self):
        self._connection.close()


@pytest.fixture
def ask(database, database_url):
    fill(database)
    server = HttpServer(database_url)
    thread = threading.Thread(target=server.run)
    thread.start()
    client = Client(server.port)
    yield client
    client.close()
    server.stop()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("form", ["", "&format=csv", "&format=arrow", "&page_size=1"])
def test_a_reader_may_ask_for_the_same_offsets(ask, database, form):
    serve_view(database, "users", "SELECT 1 AS n", {"clicks": {0: 5}})
    both = "SELECT count(*) AS n FROM pages CROSS JOIN users"
    status, answer = ask.sql(both, f"{form}&same_offsets=true")
    assert (status, answer["kind"]) == (409, "different_offsets")
    assert "pages v1 counts clicks 0 up to 4, and users v1 up to 5" in answer["error"]
    assert ask.bytes(f"/query?sql={quote(both)}{form}&same_offsets=false")
    assert ask.bytes(f"/query?sql={quote('SELECT n FROM users')}{form}&same_offsets=true")
    status, answer = ask.sql(both, "&same_offsets=perhaps")
    assert (status, answer["kind"]) == (400, "bad_request")


def test_a_view_that_failed_is_not_the_mistake_of_who_asks(ask, database):
    catalog = Catalog(database)
    catalog.create_view("users", "kappa", "h")
    catalog.add_version("users", {}, "h")
    catalog.set_state("users", 1, VersionEvent.FAILED, error="there is no topic 'clicks'")
    status, answer = ask.sql("SELECT * FROM users")
    assert (status, answer["kind"]) == (503, "not_served")
    assert "v1 failed: there is no topic 'clicks'" in answer["error"]


def test_a_query_is_answered_with_what_it_is_as_of(ask):
    status, answer = ask.sql("SELECT * FROM pages ORDER BY clicks")
    assert status == 200
    as_of = answer.pop("as_of")
    assert answer == {
        "columns": ["page", "clicks", "share", "tags"],
        "rows": [["a,b", 1, 1, ["x"]], [None, 2, 2, None]],
        "truncated": False,
    }
    assert [(found["view"], found["version"], found["offsets"]) for found in as_of] == [
        ("pages", 1, {"clicks": {"0": 4}})
    ]
    assert as_of[0]["age_ms"] >= 0


def test_a_query_may_be_posted(ask):
    body = json.dumps({"sql": "SELECT clicks FROM pages ORDER BY 1", "limit": 1})
    status, answer = ask("/query", method="POST", body=body)
    assert (status, answer["rows"], answer["truncated"]) == (200, [[1]], True)


def test_csv_has_the_rest_in_headers(ask):
    for more, accept in (("&format=csv", "*/*"), ("", "text/csv")):
        status, text = ask(f"/query?sql={quote('SELECT * FROM pages ORDER BY clicks')}{more}", accept=accept)
        assert status == 200
        assert text == 'page,clicks,share,tags\n"a,b",1,1,"[""x""]"\n,2,2,\n'
        assert ask.response.getheader("content-type").startswith("text/csv")
        assert ask.response.getheader("headrace-truncated") == "false"
        assert json.loads(ask.response.getheader("headrace-as-of"))[0]["offsets"] == {"clicks": {"0": 4}}


def test_arrow_has_the_rest_in_headers_and_as_of_in_the_schema(ask):
    sql = quote("SELECT clicks, page FROM pages ORDER BY clicks")
    stream = "application/vnd.apache.arrow.stream"
    for more, accept in (("&format=arrow", "*/*"), ("", stream), ("&limit=all&compression=zstd", stream)):
        body = ask.bytes(f"/query?sql={sql}{more}", accept=accept)
        assert ask.response.getheader("content-type") == stream
        assert int(ask.response.getheader("content-length")) == len(body)
        assert ask.response.getheader("headrace-truncated") == "false"
        table = pa.ipc.open_stream(body).read_all()
        assert table.to_pylist() == [{"clicks": 1, "page": "a,b"}, {"clicks": 2, "page": None}]
        told = json.loads(ask.response.getheader("headrace-as-of"))
        assert json.loads(table.schema.metadata[b"headrace.as_of"]) == told
        assert told[0]["offsets"] == {"clicks": {"0": 4}}
    body = ask.bytes(f"/query?sql={sql}&format=arrow&limit=1")
    assert (pa.ipc.open_stream(body).read_all().num_rows, ask.response.getheader("headrace-truncated")) == (1, "true")


def test_pages_of_json_and_csv_are_the_whole_answer(ask):
    _, page = ask.sql("SELECT clicks, tags FROM pages ORDER BY clicks", "&page_size=1")
    assert (page["columns"], page["rows"], page["truncated"]) == (["clicks", "tags"], [[1, ["x"]]], False)
    _, last = ask(f"/query?page={page['next']}&page_size=1")
    assert (last["rows"], last["next"], last["as_of"]) == ([[2, None]], None, page["as_of"])
    _, text = ask(f"/query?page={page['next']}&format=csv")
    assert (text, ask.response.getheader("headrace-next")) == ("clicks,tags\n2,\n", None)
    _, text = ask.sql("SELECT clicks, tags FROM pages ORDER BY clicks", "&page_size=1&format=csv")
    assert text == 'clicks,tags\n1,"[""x""]"\n'
    assert ask(f"/query?page={ask.response.getheader('headrace-next')}")[1]["rows"] == [[2, None]]
    body = json.dumps({"sql": "SELECT clicks FROM pages ORDER BY 1", "page_size": 5})
    _, answer = ask("/query", method="POST", body=body)
    assert (answer["rows"], answer["next"]) == ([[1], [2]], None)


def wait_until(condition):
    pause = threading.Event()
    assert any(condition() or pause.wait(0.02) for _ in range(1000))


#: More bytes than sockets buffer.
MANY = (
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 60000) "
    f"SELECT x, '{'x' * 300}' AS text FROM n"
)


def test_a_client_that_does_not_read_holds_no_transaction_and_is_disconnected(database, database_url, monkeypatch):
    monkeypatch.setattr("headrace.http_endpoints.asgi_protection.BoundedProtocol.stall_seconds", 0.5)
    fill(database)
    server = HttpServer(database_url)
    thread = threading.Thread(target=server.run)
    thread.start()
    spool = server._answers.spool
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(f"GET /query?format=arrow&limit=all&sql={quote(MANY)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert slow.recv(12) == b"HTTP/1.1 200", "the first bytes have come, so the rows are in the file"
            if not database.is_sqlite:
                with database.read() as connection:
                    open_ones = "SELECT count(*) FROM pg_stat_activity WHERE xact_start > '2000-01-01' AND datname > ''"
                    assert connection.exec_driver_sql(open_ones).scalar() == 1, "only this one"
            with closing(Client(server.port)) as other:
                assert other.sql("SELECT count(*) FROM pages")[1]["rows"] == [[2]]
                table = pa.ipc.open_stream(other.bytes(f"/query?format=arrow&limit=all&sql={quote(MANY)}")).read_all()
                assert table.column("x").to_pylist() == [*range(1, 60_001)]
            wait_until(lambda: spool.file_count == 0)
        with socket.create_connection(("127.0.0.1", server.port)) as gone:
            gone.sendall(f"GET /query?format=csv&limit=all&sql={quote(MANY)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert gone.recv(12) == b"HTTP/1.1 200"
        wait_until(lambda: spool.file_count == 0)
        assert spool.size_bytes == 0
    finally:
        server.stop()
        thread.join(20)
    assert not thread.is_alive()


def test_views_are_listed(ask):
    status, answer = ask("/views")
    assert status == 200
    (view,) = answer["views"]
    assert (view["name"], view["serving_version"], view["state"]) == ("pages", 1, "serving")
    assert list(view["columns"]) == ["page", "clicks", "share", "tags"]
    assert view["as_of"]["offsets"] == {"clicks": {"0": 4}}


ERRORS = [
    ("/query", 400, "bad_request", "sql is missing"),
    ("/query?sql=SELECT%201&limit=0", 400, "bad_request", "limit must be a number from 1"),
    ("/query?sql=SELECT%201&limit=many", 400, "bad_request", "limit"),
    ("/query?sql=SELECT%201&timeout_ms=99999999", 400, "bad_request", "timeout_ms"),
    ("/query?sql=SELECT%201&limit=all", 400, "bad_request", "use page_size"),
    ("/query?sql=SELECT%201&format=arrow&page_size=5", 400, "bad_request", "has no pages"),
    ("/query?sql=SELECT%201&page_size=5&limit=5", 400, "bad_request", "not both"),
    ("/query?sql=SELECT%201&page_size=100001", 400, "bad_request", "page_size must be a number from 1 to 100000"),
    ("/query?sql=SELECT%201&page=x.0", 400, "bad_request", "only page for the next ones"),
    ("/query?page=x.0", 410, "page_gone", "run the query again"),
    ("/query?sql=SELECT%201&format=arrow&compression=gzip", 400, "bad_request", "none, lz4, zstd"),
    ("/query?sql=SELECT%201&format=csv&compression=lz4", 400, "bad_request", "needs format=arrow"),
    ("/query?sql=SELECT%201&format=xml", 400, "bad_request", "json, csv or arrow"),
    ("/query?sql=SELECT%20nope%20FROM%20pages", 400, "bad_query", "nope"),
    ("/query?sql=SELECT%20*%20FROM%20pagez", 400, "bad_query", "did you mean pages"),
    ("/query?sql=DROP%20VIEW%20pages", 403, "read_only", "queries can only read"),
    ("/nowhere", 404, "http", "Not Found"),
]


def test_an_error_is_json_and_says_what_to_do(ask):
    for path, status, kind, words in ERRORS:
        found, answer = ask(path)
        assert (found, answer["kind"]) == (status, kind), path
        assert words in answer["error"]


def test_a_body_that_is_no_request_is_told_so(ask):
    for body in ("{", "[]", '{"sql": 7}', '{"sql": "SELECT 1", "limit": true}'):
        found, answer = ask("/query", method="POST", body=body)
        assert (found, answer["kind"]) == (400, "bad_request"), body
    assert ask("/query", method="POST", body=" " * (1 << 20) + "{}")[0] == 413


def test_other_methods_are_refused(ask):
    assert ask("/query", method="DELETE")[0] == 405
    assert ask("/views", method="POST", body="{}")[0] == 405


def test_a_query_that_takes_too_long_is_stopped_and_others_go_on(ask):
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    status, answer = ask.sql(endless, "&timeout_ms=50")
    assert (status, answer["kind"]) == (408, "timeout")
    assert ask.sql("SELECT 1 AS one")[1]["rows"] == [[1]]


def test_a_database_that_is_not_there_yet_is_503(tmp_path):
    server = HttpServer(f"sqlite:///{tmp_path}/views.db")
    thread = threading.Thread(target=server.run)
    thread.start()
    client = Client(server.port)
    status, answer = client.sql("SELECT 1")
    assert (status, answer["kind"]) == (503, "unreachable")
    client.close()
    server.stop()
    thread.join(20)


def test_an_address_that_is_taken_is_told(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServingError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            HttpServer(f"sqlite:///{tmp_path}/views.db", port=port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_when_it_is_ready_and_ends_when_it_is_told(tmp_path, number):
    (tmp_path / "headrace.toml").write_text('[serving]\nurl = "sqlite:///views.db"\n')
    code = "import sys; from headrace.pipeline.serving.http.server import serve; serve(sys.argv[1], port=0)"
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        client = Client(int(ready.rpartition(":")[2]))
        assert client("/views")[0] == 503
        client.close()
        process.send_signal(number)
        process.wait(20)
    assert ready.startswith("ready 127.0.0.1:")
    assert process.returncode == 0
