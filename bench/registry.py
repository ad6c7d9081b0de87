"""Measures how many schemas per second a registry returns by their ids, and how fast it registers new ones.

    .venv/bin/python bench/registry.py [--peer http://HOST:PORT] [--seconds 5] [--write]

``--peer`` is another registry that already runs, such as Karapace: both registries get the same schemas, and take
turns. Karapace cannot be installed from PyPI, so it is not started here. Without a peer the numbers of Headrace stand
alone.

The client is eight connections of HTTP/1.1 in one thread, each with one request at a time. It reads as little of an
answer as it can, so that the registry is what limits the rate; it still shares the machine's cores with the registry.
``--write`` puts the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import report
from report import Row, Table
from turns import alternate

from headrace import Broker
from headrace.testing.registry_process import RegistryProcess

SCHEMAS = 200
CONNECTIONS = 8
REGISTERED = 200
ROUNDS = 5


def rows() -> dict[str, Row]:
    return {
        "ids": Row("lookups by id, 8 connections", "requests/s", ">=", 1.0),
        "versions": Row("latest version of a subject, 8 connections", "requests/s", ">=", 1.0),
        "register": Row("a new Avro schema registered, one client, p50", "ms", "<="),
    }


def schema(number: int, prefix: str = "Bench") -> str:
    fields = [{"name": f"field_{at}", "type": "string"} for at in range(10)]
    return json.dumps({"type": "record", "name": f"{prefix}{number}", "fields": fields})


def register(url: str, subject: str, text: str) -> int:
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = Request(f"{url}/subjects/{subject}/versions", json.dumps({"schema": text}).encode(), headers)
    with urlopen(request, timeout=60) as answer:
        return int(json.load(answer)["id"])


def rate(url: str, paths: list[str], seconds: float) -> float:
    """Requests per second of all connections together."""
    address = urlsplit(url)
    requests = [f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode() for path in paths]
    done, at = 0, 0
    with selectors.DefaultSelector() as selector:
        for _ in range(CONNECTIONS):
            connection = socket.create_connection((address.hostname, address.port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ, bytearray())
            connection.sendall(requests[at % len(requests)])
            at += 1
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            for key, _ in selector.select(1):
                key.data.extend(key.fileobj.recv(65_536))
                if not is_complete(key.data):
                    continue
                assert key.data.startswith(b"HTTP/1.1 200"), bytes(key.data[:200])
                key.data.clear()
                done += 1
                key.fileobj.sendall(requests[at % len(requests)])
                at += 1
        elapsed = time.perf_counter() - started
        for key in list(selector.get_map().values()):
            key.fileobj.close()
    return done / elapsed


def is_complete(answer: bytearray) -> bool:
    head, separator, body = bytes(answer).partition(b"\r\n\r\n")
    if not separator:
        return False
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return len(body) >= int(length)


def registration_ms(url: str, turn: int) -> float:
    times = []
    for number in range(REGISTERED):
        text = schema(number, f"Turn{turn}n")
        started = time.perf_counter()
        register(url, f"turn-{turn}-{number}", text)
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


def measure(table: Table, urls: Mapping[str, str], seconds: float) -> None:
    ids = {side: [register(url, f"bench-{at}", schema(at)) for at in range(SCHEMAS)] for side, url in urls.items()}
    sides = {side: (side, url) for side, url in urls.items()}
    found = alternate(
        sides, lambda one: rate(one[1], [f"/schemas/ids/{each}" for each in ids[one[0]]], seconds), rounds=ROUNDS
    )
    latest = [f"/subjects/bench-{at}/versions/latest" for at in range(SCHEMAS)]
    versions = alternate(sides, lambda one: rate(one[1], latest, seconds), rounds=ROUNDS)
    turns = iter(range(1_000))
    registered = alternate(sides, lambda one: registration_ms(one[1], next(turns)), rounds=2)
    for side in urls:
        table.put(side, "ids", max(found[side]))
        table.put(side, "versions", max(versions[side]))
        table.put(side, "register", min(registered[side]))


def alone(table: Table) -> str:
    """The table without a peer."""
    lines = [report.measured(), "", "| | Headrace |", "|---|---|"]
    lines += [f"| {row.what} | {row.headrace:,.4g} {row.unit} |" for row in table.rows.values()]
    remark = (
        "Karapace is not on PyPI, so the numbers stand alone. `--peer URL` measures a registry that runs elsewhere, in "
        "alternating turns."
    )
    return "\n".join([*lines, "", remark])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="URL", help="another registry, which runs already")
    parser.add_argument("--seconds", type=float, default=5.0, help="the length of a turn (default %(default)s)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args()
    table = Table(rows(), peer=options.peer or "")
    settings = {"group.initial.rebalance.delay.ms": 0}
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(config=settings) as broker,
        RegistryProcess(broker.bootstrap_servers, Path(folder)) as ours,
    ):
        urls = {"headrace": ours.url}
        if options.peer:
            urls["apache"] = options.peer.rstrip("/")
        measure(table, urls, options.seconds)
    text = table.markdown() if options.peer else alone(table)
    print(text)
    if options.write:
        report.write("registry", text)


if __name__ == "__main__":
    main()
