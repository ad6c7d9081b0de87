"""kcat, as a person uses it from a shell."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable

import pytest
from interop_records import CODECS, FIRST_TIMESTAMP_MS, WITHIN_S, checksum, many

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed (script/install-package kcat)"
)

Kcat = Callable[..., bytes]


@pytest.fixture
def kcat(bootstrap: str) -> Kcat:
    """Runs kcat, and returns what it wrote; fails where it fails or complains."""

    def run(*arguments: str | int, stdin: bytes = b"") -> bytes:
        command = ["kcat", "-b", bootstrap, *map(str, arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=WITHIN_S, check=False)
        assert (done.returncode, done.stderr.decode()) == (0, "")
        return done.stdout

    return run


def consume(kcat: Kcat, topic: str, *arguments: str | int) -> list[bytes]:
    return kcat("-C", "-q", "-e", "-X", "fetch.wait.max.ms=50", "-t", topic, *arguments).splitlines()


def test_metadata(kcat: Kcat, bootstrap: str, topic: str) -> None:
    kcat("-P", "-t", topic, stdin=b"v\n")
    told = json.loads(kcat("-L", "-J", "-t", topic))
    names = dict(enumerate(bootstrap.split(",")))
    assert {broker["id"]: broker["name"] for broker in told["brokers"]} == names
    assert told["controllerid"] in names
    [described] = told["topics"]
    [partition] = described["partitions"]
    assert (described["topic"], partition["partition"], partition["leader"] in names) == (topic, 0, True)
    for replicas in (partition["replicas"], partition["isrs"]):
        assert sorted(replica["id"] for replica in replicas) == [*names]
    assert f'topic "{topic}" with 1 partitions'.encode() in kcat("-L")


def test_lines_from_standard_input(kcat: Kcat, topic: str) -> None:
    values = many(1000)
    kcat("-P", "-t", topic, stdin=b"\n".join(values) + b"\n")
    assert consume(kcat, topic) == values


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(kcat: Kcat, topic: str, codec: str, stored_codecs: Callable[[str], set[str]]) -> None:
    values = many(1000)
    kcat("-P", "-z", codec, "-t", topic, stdin=b"\n".join(values))
    assert codec in stored_codecs(topic)  # a batch that would not shrink goes plain
    assert consume(kcat, topic) == values


def test_keys_headers_and_null_values(kcat: Kcat, topic: str) -> None:
    kcat("-P", "-t", topic, "-K:", "-Z", "-H", "trace=1", "-H", "trace=2", stdin=b"key:value\ngone:\n")
    assert consume(kcat, topic, "-K:", "-Z", "-f", "%k=%s %h\n") == [
        b"key=value trace=1,trace=2",
        b"gone=NULL trace=1,trace=2",
    ]


def test_offsets(kcat: Kcat, topic: str) -> None:
    values = many(20)
    kcat("-P", "-t", topic, stdin=b"\n".join(values))
    assert consume(kcat, topic, "-o", "beginning") == values
    assert consume(kcat, topic, "-o", 5) == values[5:]
    assert consume(kcat, topic, "-o", -3) == values[-3:]
    assert consume(kcat, topic, "-o", "end") == []
    assert consume(kcat, topic, "-o", 5, "-c", 2) == values[5:7]


def test_timestamps(kcat: Kcat, topic: str) -> None:
    kcat("-P", "-t", topic, stdin=b"early\n")
    [stamp] = consume(kcat, topic, "-f", "%T\n")
    early_ms = int(stamp)
    assert early_ms > FIRST_TIMESTAMP_MS
    assert consume(kcat, topic, "-o", f"s@{FIRST_TIMESTAMP_MS}") == [b"early"]
    assert consume(kcat, topic, "-o", f"s@{early_ms}") == [b"early"]
    assert consume(kcat, topic, "-o", f"s@{early_ms + 1}") == []
    assert consume(kcat, topic, "-o", f"s@{FIRST_TIMESTAMP_MS}", "-o", f"e@{early_ms}") == []
    assert kcat("-Q", "-t", f"{topic}:0:{early_ms}").split() == [topic.encode(), b"[0]", b"offset", b"0"]


def test_querying_offsets(kcat: Kcat, topic: str) -> None:
    kcat("-P", "-t", topic, stdin=b"\n".join(many(7)))

    def at(time: int) -> bytes:
        return kcat("-Q", "-t", f"{topic}:0:{time}").split()[-1]

    assert at(-2) == b"0"
    assert at(-1) == b"7"
    assert at(FIRST_TIMESTAMP_MS) == b"0"


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(kcat: Kcat, topic: str, acks: int) -> None:
    values = many(100)
    kcat("-P", "-t", topic, "-X", f"acks={acks}", stdin=b"\n".join(values))
    # With acks=0 the records may come later than kcat ends, so they are counted and not read to the end.
    found = kcat("-C", "-q", "-c", 100, "-o", "beginning", "-X", "fetch.wait.max.ms=50", "-t", topic)
    assert found.splitlines() == values


def test_an_idempotent_producer(kcat: Kcat, topic: str) -> None:
    values = many(500)
    kcat("-P", "-t", topic, "-X", "enable.idempotence=true", "-X", "batch.num.messages=10", stdin=b"\n".join(values))
    assert consume(kcat, topic, "-X", "isolation.level=read_committed") == values


def test_many_small_records(kcat: Kcat, topic: str) -> None:
    values = many(100_000)
    kcat("-P", "-t", topic, "-z", "lz4", stdin=b"\n".join(values))
    found = consume(kcat, topic)
    assert (len(found), checksum(found)) == (len(values), checksum(values))


def test_a_file_as_one_record(kcat: Kcat, topic: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("kcat") / "record"
    path.write_bytes(b"x" * 900_000)
    kcat("-P", "-t", topic, str(path))
    assert [len(value) for value in consume(kcat, topic)] == [900_000]


def test_a_topic_that_is_not_there(bootstrap: str, topic: str) -> None:
    command = ["kcat", "-b", bootstrap, "-C", "-e", "-t", topic, "-X", "allow.auto.create.topics=false"]
    done = subprocess.run(command, capture_output=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 1
    assert b"Unknown topic or partition" in done.stderr
