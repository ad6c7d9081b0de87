"""Starts one broker for all these tests, as a user starts it, and stops it as an init system does.

The broker is a process of its own: clients reach it by a socket, and its log is read at the end. A client that makes
the broker log a warning, an error or a stack trace fails the run, even if the client itself continues.

``HEADRACE_TEST_BROKERS=3`` makes it a cluster of three brokers, where every topic has three replicas.
"""

from __future__ import annotations

import gc
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from logging import WARNING
from pathlib import Path
from struct import unpack_from

import pytest
from interop_brokers import BROKERS, CLUSTER_OPTIONS, own_brokers
from interop_records import CODECS

with warnings.catch_warnings():
    # kafka-python reads its schemas, as it is imported, in a way that Python 3.11 has deprecated.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    import kafka  # noqa: F401

_ATTRIBUTES_AT, _LENGTH_AT, _LENGTH_COUNTS_FROM = 21, 8, 12
_CODEC_BITS = 0b111

#: What the controller says of brokers that stop while it has something to tell them.
_OF_THE_END = "cannot be reached, trying again: the connection to"

_numbers = count()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The broker's folder."""
    return tmp_path_factory.mktemp("headrace") / "data"


@pytest.fixture(scope="session")
def bootstrap(data: Path) -> Iterator[str]:
    """Where ``headrace start`` listens."""
    log_path = data.with_name("stderr.txt")
    headrace = Path(sys.executable).with_name("headrace")
    options = () if BROKERS == 1 else ("--brokers", str(BROKERS), *CLUSTER_OPTIONS)
    command = [headrace, "start", "--data", str(data), "--listen", "127.0.0.1:0", *options]
    with (
        log_path.open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        ready = re.fullmatch(r"ready (127\.0\.0\.1:\d+\S*)\n", process.stdout.readline())
        if ready is None:
            process.kill()
            pytest.fail(f"headrace did not start: {log_path.read_text()}")
        yield ready[1]
        process.send_signal(signal.SIGTERM)
        exit_code = process.wait(timeout=20)
    complaints = [
        line
        for line in log_path.read_text().splitlines()
        if re.search(r" (WARNING|ERROR|CRITICAL) |^\S*Error", line) and _OF_THE_END not in line
    ]
    assert exit_code == 0
    assert complaints == []


@pytest.fixture
def fresh_bootstrap(tmp_path: Path) -> Iterator[str]:
    """Of the test's own."""
    with own_brokers(tmp_path) as bootstrap:
        yield bootstrap


@pytest.fixture
def new_topic() -> Callable[[], str]:
    """Names that no other test uses."""
    return lambda: f"interop-{next(_numbers)}"


@pytest.fixture
def topic(new_topic: Callable[[], str]) -> str:
    return new_topic()


@pytest.fixture
def stored_codecs(data: Path) -> Callable[[str], set[str]]:
    """How the batches of a topic's first partition are compressed on disk.

    A client that believes that a broker lacks a codec sends the records plain, and says nothing.
    """

    def read(topic: str) -> set[str]:
        content = next(data.glob(f"**/{topic}-0/{0:020}.log")).read_bytes()
        found, position = set(), 0
        while position < len(content):
            (attributes,) = unpack_from(">h", content, position + _ATTRIBUTES_AT)
            (length,) = unpack_from(">i", content, position + _LENGTH_AT)
            found.add(("none", *CODECS)[attributes & _CODEC_BITS])
            position += _LENGTH_COUNTS_FROM + length
        return found

    return read


@pytest.fixture
def client_complaints(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What a client written in Python logs as a warning or worse fails its test, unless the test takes it out."""
    complaints = ["ran for"]  # kafka-python, where the machine is too busy for its event loop
    yield complaints
    seen = [*caplog.get_records("setup"), *caplog.get_records("call")]
    unexpected = [
        text
        for record in seen
        if record.levelno >= WARNING and record.name.startswith(("kafka", "aiokafka"))
        for text in [record.getMessage()]
        if not any(expected in text for expected in complaints)
    ]
    assert unexpected == []


@pytest.fixture
def librdkafka_complaints(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """What librdkafka writes to standard error as a warning or worse fails the test.

    Not that it resets an offset: it always says so, and the tests that make it look at where it went. Nor that it tries
    again because a coordinator still loads its part of a topic: the first producer of a cluster may be that early.

    A client of an earlier test may be part of a reference cycle, and complain about its broker, which has stopped. So
    a garbage collection ends such clients first.
    """
    gc.collect()
    capfd.readouterr()
    yield
    expected = re.compile(r"offset reset|Coordinator load in progress: retrying")
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if re.match(r"%[0-4]\|", line) and not expected.search(line)] == []
