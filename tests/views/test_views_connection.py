"""headrace.views: answers over HTTP as Arrow, pandas and polars; secrets, and errors."""

import json
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from struct import pack

import pyarrow as pa
import pytest
import trustme

import headrace.views
from headrace.http_endpoints.access import Access
from headrace.http_endpoints.protection import Protection
from headrace.pipeline import Project
from headrace.pipeline.serving import errors as serving_errors
from headrace.pipeline.serving.catalog import Catalog, Progress, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.http.server import HttpServer
from headrace.pipeline.serving.tables import create_table, data_table, select_all
from headrace.views import (
    AsOf,
    DifferentOffsets,
    NotReadOnly,
    QueryError,
    QueryTimeout,
    Unauthorized,
    Unreachable,
    ViewsError,
)
from served_view import serve_view

SCHEMA = pa.schema([("page", pa.string()), ("clicks", pa.int64())])
TOKEN = "readers-token"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The URL of a database with a view of two pages."""
    found = f"sqlite:///{tmp_path_factory.mktemp('views') / 'views.db'}"
    database = Database(found)
    catalog = Catalog(database)
    catalog.create_view("pages", "kappa", "h")
    catalog.add_version("pages", {}, "h")
    for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
        catalog.set_state("pages", 1, event)
    table = data_table("pages__v1", SCHEMA, ["page"])
    with database.begin() as connection:
        create_table(connection, table)
        database.upsert(connection, table, pa.table([["<home>", None], [1, 2]], schema=SCHEMA), batch_id=1)
        catalog.set_progress(connection, Progress("pages", 1, 1, {"clicks": {0: 4}}))
        catalog.switch(connection, "pages", 1, select_all(table))
    database.close()
    return found


@contextmanager
def serving(url, protection=None):
    server = HttpServer(url, protection=protection)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server.port
    finally:
        server.stop()
        thread.join(20)


@pytest.fixture(scope="module")
def views(url):
    with serving(url) as port:
        yield headrace.views.connect(f"http://127.0.0.1:{port}")


SQL = "SELECT * FROM pages ORDER BY clicks"


def test_an_answer_becomes_what_is_asked_for(views):
    answer = views.query(SQL)
    assert answer.columns == ["page", "clicks"]
    assert answer.to_arrow().to_pylist() == [{"page": "<home>", "clicks": 1}, {"page": None, "clicks": 2}]
    assert answer.to_pandas()["clicks"].tolist() == [1, 2]
    assert answer.to_polars()["page"].to_list() == ["<home>", None]
    assert list(answer) == [("<home>", 1), (None, 2)]
    (as_of,) = answer.as_of
    assert (type(as_of), as_of.view, as_of.version, as_of.offsets) == (AsOf, "pages", 1, {"clicks": {0: 4}})
    assert not answer.is_truncated


def test_rows_are_read_once_if_nothing_keeps_them(views):
    answer = views.query(SQL, compression="zstd")
    assert list(answer) == [("<home>", 1), (None, 2)]
    with pytest.raises(ViewsError, match=r"call to_arrow\(\) first"):
        answer.to_arrow()
    with views.query(SQL) as left:
        assert left.schema == SCHEMA.with_metadata(left.schema.metadata)
    with pytest.raises(ViewsError, match="read already"):
        list(left)


def test_a_limit_is_told(views):
    answer = views.query(SQL, limit=1)
    assert (answer.to_arrow().num_rows, answer.is_truncated) == (1, True)


def test_a_notebook_shows_a_table(views):
    shown = views.query(SQL)._repr_html_()
    assert shown.startswith("<table><thead><tr><th>page</th><th>clicks</th></tr></thead>")
    assert "<td>&lt;home&gt;</td><td>1</td>" in shown
    assert "<td></td><td>2</td>" in shown
    assert "<p>2 rows</p><p>pages v1 as of clicks 0:4, " in shown
    with views.query(SQL) as answer:
        assert repr(answer).startswith("<Answer of page, clicks; pages v1 as of clicks 0:4")


def test_views_are_listed(views):
    assert [(view["name"], view["columns"]) for view in views.views()] == [
        ("pages", {"page": "TEXT", "clicks": "BIGINT"})
    ]


def test_errors_of_queries_have_types(views):
    for sql, kind, words in (
        ("SELECT * FROM pagez", QueryError, "did you mean pages"),
        ("DROP VIEW pages", NotReadOnly, "queries can only read"),
    ):
        with pytest.raises(kind, match=words):
            views.query(sql)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(QueryTimeout):
        views.query(endless, timeout_ms=200)
    with pytest.raises(ViewsError, match="timeout_ms must be"):
        views.query("SELECT 1", timeout_ms=10**9)
    assert issubclass(serving_errors.QueryError, QueryError)
    assert serving_errors.NotReadOnly.kind == "read_only"


def test_a_reader_may_ask_for_the_same_offsets(url, tmp_path):
    shutil.copy(url.removeprefix("sqlite:///"), tmp_path / "views.db")
    database = Database(f"sqlite:///{tmp_path / 'views.db'}")
    serve_view(database, "users", "SELECT 1 AS n", {"clicks": {0: 5}})
    database.close()
    (tmp_path / "headrace.toml").write_text('[log]\nbootstrap = "127.0.0.1:1"\n[serving]\nurl = "sqlite:///views.db"\n')
    both = "SELECT clicks FROM pages CROSS JOIN users ORDER BY 1"
    with serving(f"sqlite:///{tmp_path / 'views.db'}") as port:
        for reader in (headrace.views.connect(f"http://127.0.0.1:{port}"), Project(tmp_path)):
            with pytest.raises(DifferentOffsets, match="pages v1 counts clicks 0 up to 4, and users v1 up to 5"):
                reader.query(both, same_offsets=True)
            assert list(reader.query(both)) == [(1,), (2,)]
            assert list(reader.query("SELECT n FROM users", same_offsets=True)) == [(1,)]


def test_tls_and_secrets(url, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    protection = Protection(certificate=str(tmp_path / "both.pem"), access=Access(TOKEN, "anna:secret-word"))
    with serving(url, protection) as port:
        there, ca_file = f"https://127.0.0.1:{port}", tmp_path / "ca.pem"
        for accepted in (
            headrace.views.connect(there, token=TOKEN, ca_file=ca_file),
            headrace.views.connect(there, user="anna", password="secret-word", ca_file=ca_file),
            headrace.views.connect(f"https://anna:secret-word@127.0.0.1:{port}", ca_file=ca_file),
        ):
            assert accepted.query("SELECT 1 AS one").to_arrow().to_pylist() == [{"one": 1}]
            assert "secret" not in repr(accepted)
        for options in ({}, {"token": "other"}, {"user": "anna", "password": "wrong"}):
            with pytest.raises(Unauthorized, match="give the token"):
                headrace.views.connect(there, ca_file=ca_file, **options).query("SELECT 1")
        with pytest.raises(Unreachable, match="certificate verify failed"):
            headrace.views.connect(there, token=TOKEN).query("SELECT 1")


WRONG = [
    ("shop", {}, "headrace.pipeline.Project"),
    ("ftp://host", {}, "https://HOST:PORT"),
    ("http://views.example.com", {"token": "x"}, "use https"),
    ("https://a:b@host", {"token": "x"}, "not both"),
    ("http://127.0.0.1", {"user": "x"}, "needs a password"),
    ("https://127.0.0.1", {"ca_file": "/nowhere.pem"}, "/nowhere.pem cannot be used"),
]


@pytest.mark.parametrize(("where", "options", "words"), WRONG)
def test_a_wrong_url_is_refused(where, options, words):
    with pytest.raises(ViewsError, match=words):
        headrace.views.connect(where, **options)


@contextmanager
def answering(data, *, resets=False):
    """A server that sends these bytes to its first client, and closes or resets the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            client, _ = listener.accept()
            with client, client.makefile("rb") as request:
                # A socket that is closed before it has read everything resets the connection.
                sizes = [
                    int(line.split()[1]) for line in iter(request.readline, b"\r\n") if line[:15] == b"Content-Length:"
                ]
                request.read(sum(sizes))
                client.sendall(data)
                if resets:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))

        thread = threading.Thread(target=serve)
        thread.start()
        yield headrace.views.connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join(10)


def test_an_answer_that_breaks_off_is_an_error(views):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        for _ in range(3):
            writer.write_batch(pa.record_batch([["a"] * 9, [1] * 9], schema=SCHEMA))
    body = sink.getvalue().to_pybytes()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.apache.arrow.stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    whole = head.encode() + body
    with answering(whole) as connection:
        assert connection.query("SELECT 1").to_arrow().num_rows == 27
    # Without its last 8 bytes, the stream has all batches and no end.
    for missing in (8, 100, len(body) // 2):
        with answering(whole[:-missing]) as connection, pytest.raises(ViewsError, match="run the query again"):
            connection.query("SELECT 1").to_arrow()
    with (
        answering(head.encode(), resets=True) as connection,
        pytest.raises(Unreachable, match=r"broke off|cannot reach"),
    ):
        connection.query("SELECT 1")
    for other in (
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 404 No\r\n\r\n<html>",
        whole[: -len(body)],
    ):
        with answering(other) as connection, pytest.raises(Unreachable):
            connection.query("SELECT 1")


def test_a_server_that_is_not_there_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match=f"cannot reach http://127.0.0.1:{port}"):
        headrace.views.connect(f"http://127.0.0.1:{port}").query("SELECT 1")


def test_the_module_needs_arrow_only(views):
    """Neither Spark nor SQLAlchemy nor a driver is imported, and Arrow only for an answer."""
    program = (
        "import sys, json, headrace.views as v; before = [name for name in sys.modules if name == 'pyarrow']; "
        f"rows = list(v.connect({views.name!r}).query({SQL!r})); "
        "print(json.dumps([before, rows, [name for name in ('sqlalchemy', 'pyspark', 'psycopg', 'pandas', 'starlette', "
        "'headrace.pipeline') if name in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == [[], [["<home>", 1], [None, 2]], []]
