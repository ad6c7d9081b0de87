"""``headrace mirror-maker`` is killed with ``kill -9`` many times, and so are the brokers on both sides.

Each partition of the target must have every number of the source once and in order, as a read_committed consumer sees
it. Translated offsets must lead to the same record.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lasting_server import Server

from headrace import Admin, Consumer, Producer, TopicPartition

TOPIC, COPY = "numbers", "copy.numbers"
PARTITIONS = 3
PLACES = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
COPIES = [TopicPartition(COPY, index) for index in range(PARTITIONS)]
#: Records a partition, and in a batch. Rounds take in little, so that kills come in the midst of them and between.
COUNT = 30_000
BATCH = 500
SMALL_FETCHES = "max.partition.fetch.bytes=16000\n"
SETTINGS = (
    "-o", f"num.partitions={PARTITIONS}", "-o", "offsets.topic.num.partitions=1",
    "-o", "transaction.state.log.num.partitions=1",
)  # fmt: skip
GROUP, GROUP_OFFSET = "readers", COUNT // 2
_COMMAND = (sys.executable, "-c", "from headrace.tools.main import main; main()", "mirror-maker", "--json")


class MirrorProcess:
    def __init__(self, source: Server, target: Server, config: Path, *arguments: str) -> None:
        config.write_text(SMALL_FETCHES)
        self._process = subprocess.Popen(
            [
                *_COMMAND, "--source", source.address, "--target", target.address, "--include", TOPIC,
                "--topic-prefix", "copy.", "--offset.commit.interval.ms", "0", "--sync-group-offsets", ".*",
                "--sync.group.offsets.interval.ms", "100", "--consumer.config", str(config), *arguments,
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def begins(self) -> None:
        assert self._process.stdout is not None
        event = json.loads(self._process.stdout.readline())
        assert event["event"] == "mirroring", event

    def ends(self, number: signal.Signals | None = None, code: int = 0) -> list[dict[str, object]]:
        """The events that it told."""
        if number is not None:
            self._process.send_signal(number)
        out, err = self._process.communicate(timeout=60)
        assert self._process.returncode == code, err
        return [json.loads(line) for line in out.splitlines()]

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    source, target = Server(tmp_path / "source", *SETTINGS), Server(tmp_path / "target", *SETTINGS)
    yield source, target
    source.close()
    target.close()


def write(address: str, first: int, count: int) -> None:
    """Sends ``count`` more numbers to each partition."""
    with Producer(bootstrap_servers=address) as producer:
        for start in range(first, first + count, BATCH):
            table = pa.table({"value": [b"%d" % number for number in range(start, start + BATCH)]})
            for index in range(PARTITIONS):
                producer.send_arrow(TOPIC, table, partition=index)


def copied(address: str) -> dict[int, list[int]]:
    """Returns the records that readers of committed records get."""
    parts: dict[int, list[np.ndarray]] = {index: [] for index in range(PARTITIONS)}
    config = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    with Consumer(bootstrap_servers=address, config=config) as consumer:
        consumer.assign(COPIES)
        ends = consumer.end_offsets(*COPIES)
        while any(consumer.position(place) < end for place, end in ends.items()):
            records = consumer.poll_arrow(500)
            values = records.column("value").cast(pa.string()).cast(pa.int64()).to_numpy()
            partitions = records.column("partition").to_numpy()
            for index, its in parts.items():
                its.append(values[partitions == index])
    return {index: np.concatenate(its).tolist() for index, its in parts.items()}


def wait_until_there_are(admin: Admin, count: int) -> None:
    """In all partitions of the copy, committed or not."""
    while sum(found.offset for found in admin.list_offsets(dict.fromkeys(COPIES, "latest")).all().values()) < count:
        pass


def check(target: Server, count: int) -> None:
    every = list(range(count))
    read = copied(target.address)
    for index in range(PARTITIONS):
        assert len(read[index]) == count
        assert read[index] == every
    config = {"auto.offset.reset": "none", "isolation.level": "read_committed"}
    with Consumer(COPY, bootstrap_servers=target.address, group_id=GROUP, config=config) as consumer:
        first: dict[int, int] = {}
        while len(first) < PARTITIONS:
            for record in consumer.poll(500):
                first.setdefault(record.partition, int(record.value))
    # Some may be read again, as runs of long ago are forgotten; none is missed.
    assert all(GROUP_OFFSET * 0.9 <= number <= GROUP_OFFSET for number in first.values()), first


def test_the_mirror_is_killed(servers, tmp_path):
    source, target = servers
    config = tmp_path / "consumer.properties"
    write(source.address, 0, COUNT)
    with Admin(bootstrap_servers=source.address) as admin:
        admin.alter_group_offsets(GROUP, dict.fromkeys(PLACES, GROUP_OFFSET)).all()
    with Admin(bootstrap_servers=target.address) as admin:
        for share in (0.1, 0.4, 0.8):
            mirror = MirrorProcess(source, target, config)
            try:
                mirror.begins()
                wait_until_there_are(admin, int(COUNT * PARTITIONS * share) + 1)
                mirror.ends(signal.SIGKILL, code=-signal.SIGKILL)
            finally:
                mirror.close()
    ended = MirrorProcess(source, target, config, "--once").ends()[-1]
    assert ended["event"] == "ended"
    assert ended["records"] < COUNT * PARTITIONS
    check(target, COUNT)


def test_brokers_are_killed_under_it(servers, tmp_path):
    source, target = servers
    config = tmp_path / "consumer.properties"
    third = COUNT // 3
    write(source.address, 0, third)
    with Admin(bootstrap_servers=source.address) as admin:
        admin.alter_group_offsets(GROUP, dict.fromkeys(PLACES, GROUP_OFFSET)).all()
    mirror = MirrorProcess(source, target, config)
    try:
        mirror.begins()
        with Admin(bootstrap_servers=target.address) as admin:
            wait_until_there_are(admin, 1)
        for number, server in enumerate((target, source), start=1):
            server.kill()
            server.start()
            write(source.address, third * number, third)
            with Admin(bootstrap_servers=target.address) as admin:
                wait_until_there_are(admin, third * PARTITIONS * number)
        mirror.ends(signal.SIGTERM)
        MirrorProcess(source, target, config, "--once").ends()
    finally:
        mirror.close()
    check(target, third * 3)
