"""Measures how long another client waits while a broker serves one large request. Run as a script, it prints a table.

::

    .venv/bin/python tests/scenarios/frame_waits.py                     # every array of every API, newest versions
    .venv/bin/python tests/scenarios/frame_waits.py --oldest Metadata   # the oldest versions of one API
    .venv/bin/python tests/scenarios/frame_waits.py --count 100000

The other client sends ApiVersions every millisecond on a connection of its own. Its longest wait is from sending to the
answer. Each request has a broker of its own, in its own process. A wait below about 10 ms says more about the machine
than about the broker.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from large_requests import Path as ArrayPath
from large_requests import Subject, array_paths, build, client_versions

from headrace.broker.network.handler_binding import served_apis
from headrace.protocol.api import Api
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.raw_client import ClosedByPeer, RawClient

#: Settings under which no request of the table makes topics or waits for members.
SETTINGS = ("-o", "auto.create.topics.enable=false", "-o", "group.initial.rebalance.delay.ms=0")
ANSWER_TIMEOUT_S = 120.0
LARGEST_FRAME_BYTES = 100 * 1024 * 1024
_BETWEEN_S = 0.001


class Bystander:
    """A client that asks for ApiVersions all the time, on a thread of its own."""

    def __init__(self, address: str) -> None:
        self._client = RawClient(address, timeout_s=ANSWER_TIMEOUT_S)
        self._longest_s = 0.0
        self._is_over = threading.Event()
        self._has_asked = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        while not self._is_over.is_set():
            began = time.perf_counter()
            try:
                self._client.ask(Api.API_VERSIONS, 0)
            except TimeoutError:
                self._is_over.set()  # nobody waits for longer than that
            self._longest_s = max(self._longest_s, time.perf_counter() - began)
            self._has_asked.set()
            time.sleep(_BETWEEN_S)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Asks while the block runs, and once more after the block."""
        self._thread.start()
        self._has_asked.wait()
        self._longest_s = 0.0
        try:
            yield
        finally:
            self._has_asked.clear()
            self._has_asked.wait(ANSWER_TIMEOUT_S)
            self._is_over.set()
            self._thread.join()
            self._client.close()

    @property
    def longest_wait_ms(self) -> float:
        return self._longest_s * 1_000


@dataclass(frozen=True, slots=True)
class Measured:
    longest_wait_ms: float
    answer_ms: float
    #: None if the broker did not answer in time, or closed the connection.
    answer_bytes: int | None


def measure(address: str, frame: bytes) -> Measured:
    """Sends one frame, and has a bystander wait beside it."""
    bystander = Bystander(address)
    with RawClient(address, timeout_s=ANSWER_TIMEOUT_S) as client, bystander.watching():
        began = time.perf_counter()
        client.send_frame(frame)
        answer_bytes = None
        with suppress(ClosedByPeer, TimeoutError):
            answer_bytes = len(client.read_frame())
        answer_ms = (time.perf_counter() - began) * 1_000
    return Measured(bystander.longest_wait_ms, answer_ms, answer_bytes)


def prepare(address: str) -> Subject:
    """Makes the topic and the group that requests name, and waits for the coordinators."""
    with RawClient(address, timeout_s=30) as client:
        topic = {"name": "large", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
        client.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=5_000, validate_only=False)
        (found,) = client.ask(
            Api.METADATA, 12, topics=[{"topic_id": None, "name": "large"}], include_topic_authorized_operations=False
        ).topics
        for key_type, key in ((0, "large-group"), (1, "large")):
            while (
                client.ask(Api.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=[key])
                .coordinators[0]
                .error_code
            ):
                time.sleep(0.05)
    return Subject("large", found.topic_id, "large-group")


def cases(names: list[str], *, oldest: bool) -> Iterator[tuple[Api, int, ArrayPath]]:
    for api in served_apis(in_cluster=False):
        if names and api.label not in names:
            continue
        version = client_versions(api)[0 if oldest else -1]
        for path in array_paths(api, version):
            yield api, version, path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("apis", nargs="*", help="only these, such as Metadata; default all")
    parser.add_argument("--count", type=int, default=1_000_000, help="elements per array, default %(default)s")
    parser.add_argument("--oldest", action="store_true", help="the oldest versions instead of the newest")
    options = parser.parse_args()
    rows = []
    for api, version, path in cases(options.apis, oldest=options.oldest):
        with TemporaryDirectory() as folder, BrokerProcess(Path(folder), *SETTINGS) as process:
            subject = prepare(process.address)
            frame = build(api, version, options.count, path, subject)
            if len(frame) > LARGEST_FRAME_BYTES:
                frame = build(api, version, options.count * LARGEST_FRAME_BYTES // len(frame) - 1, path, subject)
            before_bytes = process.resident_bytes
            measured = measure(process.address, frame)
            time.sleep(0.2)
            grown_mb = (process.resident_bytes - before_bytes) / 1e6
            name = f"{api.label} v{version} {'.'.join(path)}"
            rows.append((measured.longest_wait_ms, name, len(frame) / 1e6, measured, grown_mb))
            _say(_line(rows[-1]))
    _say("\nsorted by the longest wait\n")
    _say(
        "| request | frame MB | longest wait of another client, ms | answered after, ms | answer MB | memory kept, MB |"
    )
    _say("| --- | --- | --- | --- | --- | --- |")
    for row in sorted(rows, reverse=True, key=lambda row: row[0]):
        _say(_line(row))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _line(row: tuple[float, str, float, Measured, float]) -> str:
    wait_ms, name, frame_mb, measured, grown_mb = row
    answer = "none" if measured.answer_bytes is None else f"{measured.answer_bytes / 1e6:.1f}"
    return f"| {name} | {frame_mb:.0f} | {wait_ms:,.0f} | {measured.answer_ms:,.0f} | {answer} | {grown_mb:,.0f} |"


if __name__ == "__main__":
    main()
