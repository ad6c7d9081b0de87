"""Commands use the Spark of a runner through a socket that only its owner can use."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import threading
import time
from pathlib import Path

import pytest

from headrace.pipeline.maintenance.checks import check_views
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.query.project_checks import ViewToCheck
from headrace.pipeline.shared_spark import protocol
from headrace.pipeline.shared_spark.client import ask_runner
from headrace.pipeline.shared_spark.protocol import ProtocolError, receive_message, send_message, socket_folder
from headrace.pipeline.shared_spark.requests import AnsweringSpark, answer_request, check_in_runner
from headrace.pipeline.shared_spark.server import SharedSparkServer


def echo(request):
    return {"answer": dict(request)}


def ask(folder: Path, request=None):
    return ask_runner(folder, {} if request is None else request, 5)


def test_a_request_is_answered(tmp_path):
    with SharedSparkServer(tmp_path, echo):
        assert ask(tmp_path, {"kind": "é"}) == {"kind": "é"}
        assert ask(tmp_path, {"large": "x" * 1_000_000}) == {"large": "x" * 1_000_000}
    assert ask(tmp_path) is None


def test_only_the_owner_can_use_the_socket(tmp_path):
    with SharedSparkServer(tmp_path, echo):
        folder = socket_folder(tmp_path)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "spark").stat().st_mode) == 0o600


def test_processes_of_another_user_are_refused_by_both_sides(tmp_path, monkeypatch):
    near, far = socket.socketpair()
    protocol.check_peer(near)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(ProtocolError, match="another user"):
        protocol.check_peer(far)
    near.close()
    far.close()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_can_enter_is_not_trusted(tmp_path, mode):
    with SharedSparkServer(tmp_path, echo):
        socket_folder(tmp_path).chmod(mode)
        assert ask(tmp_path) is None


def test_a_link_to_another_folder_is_not_trusted(tmp_path):
    (tmp_path / "one").mkdir()
    with SharedSparkServer(tmp_path / "one", echo):
        other = tmp_path / "two" / ".headrace"
        other.mkdir(parents=True)
        (other / "run").symlink_to(socket_folder(tmp_path / "one"))
        assert ask(tmp_path / "two") is None


def test_a_runner_replaces_the_socket_of_one_that_was_killed(tmp_path):
    left = SharedSparkServer(tmp_path, echo)
    left.__enter__()
    with SharedSparkServer(tmp_path, echo):
        assert ask(tmp_path, {"a": 1}) == {"a": 1}
    left._socket.close()


def test_a_project_with_a_long_path(tmp_path):
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    with SharedSparkServer(folder, echo):
        assert ask(folder, {"a": 1}) == {"a": 1}


def test_a_busy_runner_says_so_at_once_and_recovers(tmp_path):
    go_on, waiting = threading.Event(), threading.Semaphore(0)

    def slow(request):
        waiting.release()
        go_on.wait(30)
        return echo(request)

    with SharedSparkServer(tmp_path, slow):
        threads = [threading.Thread(target=ask, args=(tmp_path,)) for _ in range(2)]
        for each in threads:
            each.start()
            waiting.acquire(timeout=10)
        assert ask(tmp_path) is None
        go_on.set()
        for each in threads:
            each.join(10)
        assert ask(tmp_path, {"a": 1}) == {"a": 1}


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_a_request_that_fails_is_not_answered_and_the_next_one_is(tmp_path, error):
    failed = []

    def fails_once(request):
        if not failed:
            failed.append(1)
            raise error
        return echo(request)

    with SharedSparkServer(tmp_path, fails_once):
        assert ask(tmp_path) is None
        assert ask(tmp_path, {"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", protocol.MAX_MESSAGE_BYTES + 1),
        struct.pack(">I", 2**32 - 1) + b"x" * 100,
        struct.pack(">I", 4) + b"[1]]",
        struct.pack(">I", 3) + b"[1]",
        struct.pack(">I", 2) + b"\xff\xfe",
        struct.pack(">I", 10) + b"{}",
        b"\x00",
        b"",
    ],
)
def test_wrong_messages_are_refused(sent):
    near, far = socket.socketpair()
    with near, far:
        near.sendall(sent)
        near.shutdown(socket.SHUT_WR)
        with pytest.raises(ProtocolError):
            receive_message(far, time.monotonic() + 5)


def test_deeply_nested_json_is_refused():
    near, far = socket.socketpair()
    with near, far:
        body = b'{"a":' * 100_000
        writer = threading.Thread(target=lambda: near.sendall(struct.pack(">I", len(body)) + body))
        writer.start()
        with pytest.raises(ProtocolError):
            receive_message(far, time.monotonic() + 10)
        writer.join(10)


def test_a_peer_that_says_nothing_is_not_waited_for():
    near, far = socket.socketpair()
    with near, far, pytest.raises((ProtocolError, TimeoutError)):
        receive_message(far, time.monotonic() + 0.05)


def test_a_message_that_is_too_large_is_not_sent():
    near, far = socket.socketpair()
    with near, far, pytest.raises(ProtocolError, match="too large"):
        send_message(near, {"a": "x" * protocol.MAX_MESSAGE_BYTES}, time.monotonic() + 5)


def test_another_version_and_an_unknown_kind_are_refused():
    with pytest.raises(ProtocolError, match=r"this command is 0\.0\.1; use the same version"):
        answer_request(None, {"kind": "check", "version": "0.0.1"})
    from headrace import __version__

    with pytest.raises(ProtocolError, match="unknown request"):
        answer_request(None, {"kind": "run", "version": __version__})


def test_no_runner_no_answer(tmp_path):
    assert check_in_runner(tmp_path, []) is None


def test_the_messages_are_json(tmp_path):
    seen = []
    with SharedSparkServer(
        tmp_path, lambda request: seen.append(json.dumps(request)) or {"answer": {"problems": [], "ways": {}}}
    ):
        assert check_in_runner(tmp_path, []) == ([], {}, {})
    assert json.loads(seen[0])["views"] == []


def test_the_runners_spark_finds_what_a_commands_own_spark_finds(spark, tmp_path):
    (tmp_path / "headrace.toml").write_text("")
    (tmp_path / "views").mkdir()
    view = 'topics = ["clicks"]\narchitecture = "lambda"\nquery = "{0}.sql"\n[decode]\nschema = "page {1}"\n'
    queries = {
        "good": ("SELECT page, count(*) AS n FROM events GROUP BY page", "STRING"),
        "column": ("SELECT\npge, count(*) AS n FROM events GROUP BY pge", "STRING"),
        "schema": ("SELECT page, count(*) AS n FROM events GROUP BY page", "STRINGG"),
    }
    for name, (query, type_) in queries.items():
        (tmp_path / "views" / f"{name}.toml").write_text(view.format(name, type_))
        (tmp_path / "views" / f"{name}.sql").write_text(query)
    draft = read_project(tmp_path)
    views = [ViewToCheck(each, draft.invalid_fields[name]) for name, each in draft.project.views.items()]
    own = check_views(spark, views)
    with SharedSparkServer(tmp_path, lambda request: answer_request(AnsweringSpark(spark, {}), request)):
        assert check_in_runner(tmp_path, views) == own
    assert [str(problem.file) for problem in own.problems] == ["views/column.sql", "views/schema.toml"]
    assert [problem.line for problem in own.problems] == [2, 5]
    assert own.ways == {"good": "combine"}
