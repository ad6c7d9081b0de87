"""The command ``headrace console``: how it starts and ends, its errors, and what it imports."""

from __future__ import annotations

import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest
from console_process import ConsoleProcess

from headrace.tools.console import main

_HEAVY = ("pandas", "pyarrow", "numba", "pyspark", "sqlalchemy", "fastavro", "google.protobuf")


def test_it_says_that_it_is_ready_and_ends_by_sigterm(broker, tmp_path):
    with (
        ConsoleProcess(broker.bootstrap_servers, tmp_path) as console,
        urlopen(f"{console.url}/api/overview") as answer,
    ):
        assert answer.status == 200
    assert (tmp_path / "history.sqlite3").exists()


def test_it_starts_although_the_cluster_is_away(tmp_path):
    with ConsoleProcess("127.0.0.1:1", tmp_path) as console, urlopen(f"{console.url}/api/openapi.json") as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--listen", "0.0.0.0:0"], "other hosts can reach 0.0.0.0"),
        (["--listen", "nonsense"], "is not HOST:PORT"),
        (["--project", "/no/such/folder"], "there is no such folder"),
        (["--data", "/dev/null/x"], "choose a folder that can be written"),
        (["--command-config", "{sasl}"], "a visitor can log in by"),
        (["--tls-certificate", "/no/such/file"], "cannot read /no/such/file"),
    ],
)
def test_wrong_settings_are_one_line(options, reason, tmp_path, capsys):
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n")
    options = [option.replace("{sasl}", str(config)) for option in options]
    assert main(["--listen", "127.0.0.1:0", *options]) == 2
    captured = capsys.readouterr()
    assert reason in captured.err
    assert captured.out == ""


def test_a_taken_address_is_an_error(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["--listen", f"127.0.0.1:{taken.getsockname()[1]}"]) == 2
    assert "choose another address" in capsys.readouterr().err


def test_the_start_imports_nothing_heavy():
    program = "import sys, headrace.console.server, headrace.console.history.store; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) & set(_HEAVY) == set()
