"""Headrace's clients and perf tools against those of others, on one Headrace broker. Prints a table of ratios.

    .venv/bin/python bench/clients.py [--quick] [--write] [--only PART]

``--write`` puts the table into docs/performance.md. Close other programs: on two cores they change the numbers. For
each row the two sides take turns, and the best round of each side counts. ``client_loads.py`` defines the work. Our
kernels are loaded before, as in any process after its first 200,000 records.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import client_loads as by
import loads
import report
import servers
from client_loads import Load
from report import Row, Table

from headrace.client.consumer.record_decoding import preload_kernels

PARTITIONS = (1, 4)
NO_BAR = float("inf")
NOTE = (
    "All sides send records of 100 B without a key, with acks=all, linger 5 ms and no compression. Batches have up to "
    "1,000,000 B and are not idempotent, which are librdkafka's defaults; the perf tools use 16,384 B and "
    "idempotence, which are Java's defaults. Fetches have 1 MiB per partition, and crcs are checked. Tuned: "
    "librdkafka with queued.min.messages=1,000,000 and fetch.queue.backoff.ms=1; with its defaults librdkafka stops "
    "for a second whenever it has fetched 100,000 messages ahead. aiokafka and our asyncio clients run on uvloop. The "
    "rates of the perf tools are those that they print."
)


class Match(NamedTuple):
    key: str
    what: str
    peer: str
    theirs: Load
    ours: Load
    bar: float
    #: The share of two million records that the slower side can handle in some seconds.
    share: float
    reads: bool


MATCHES = [
    Match("arrow", "`send_arrow`", "confluent-kafka `produce`", by.confluent_produce, by.send_arrow, 5, 1, False),
    Match("arrow", "`poll_arrow`", "confluent-kafka `consume`", by.confluent_consume, by.poll_arrow, 10, 1, True),
    Match(
        "arrow", "`poll_arrow`", "confluent-kafka `consume`, tuned",
        by.confluent_consume_tuned, by.poll_arrow, NO_BAR, 1, True,
    ),
    Match("send", "`await send`", "aiokafka `await send`", by.aiokafka_produce, by.send_async, 2.5, 0.25, False),
    Match("send", "`send`", "confluent-kafka `produce`", by.confluent_produce, by.send, 0.6, 1, False),
    Match("iterate", "`for`", "confluent-kafka `consume`, `for`", by.confluent_iterate, by.iterate, 1.5, 0.5, True),
    Match(
        "iterate", "`for`", "confluent-kafka `consume`, `for`, tuned",
        by.confluent_iterate_tuned, by.iterate, NO_BAR, 0.5, True,
    ),
    Match("iterate", "`async for`", "aiokafka `async for`", by.aiokafka_iterate, by.iterate_async, 1, 0.5, True),
    Match(
        "tools", "producer-perf-test", "Apache's", by.apache_producer_perf_test, by.producer_perf_test, 1, 1, False
    ),
    Match("tools", "consumer-perf-test", "Apache's", by.apache_consumer_perf_test, by.consumer_perf_test, 1, 1, True),
]  # fmt: skip


def rows(only: str | None) -> dict[str, Row]:
    return {
        f"{match.what}/{match.peer}/{partitions}": Row(
            f"{match.what} against {match.peer}, {partitions} partition{'s' * (partitions > 1)}",
            "records/s", ">=", match.bar,
        )
        for match in MATCHES
        for partitions in PARTITIONS
        if only in (None, match.key)
    }  # fmt: skip


def play(table: Table, server: servers.Server, match: Match, partitions: int, records: int, rounds: int) -> None:
    """Runs both sides in turn, each time with a new topic to write to, or with the full topic to read."""
    sides = {"apache": match.theirs, "headrace": match.ours}
    best = dict.fromkeys(sides, 0.0)
    for number in range(rounds):
        for side, load in sides.items():
            topic = f"full-{partitions}"
            if not match.reads:
                topic = f"{match.what.strip('`').replace(' ', '-')}-{partitions}-{side}-{number}"
                loads.create_topic(server, topic, partitions)
            best[side] = max(best[side], load(server, topic, partitions, int(records * match.share)))
            if not match.reads:
                loads.delete_topic(server, topic)
    for side, rate in best.items():
        table.put(side, f"{match.what}/{match.peer}/{partitions}", rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, to try the script")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    parser.add_argument("--only", choices=sorted({match.key for match in MATCHES}), help="a part of it")
    options = parser.parse_args()
    records, rounds = (200_000, 2) if options.quick else (2_000_000, 5)
    table = Table(rows(options.only), peer="the other")
    servers.fetch_apache()
    preload_kernels()
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as name,
        servers.headrace(Path(name) / "headrace", settings) as server,
    ):
        for partitions in PARTITIONS:
            loads.create_topic(server, f"full-{partitions}", partitions)
            by.confluent_produce(server, f"full-{partitions}", partitions, records)
        for match in [one for one in MATCHES if options.only in (None, one.key)]:
            for partitions in PARTITIONS:
                play(table, server, match, partitions, records, rounds)
    result = table.markdown(NOTE)
    print("\n" + result)
    if options.write:
        report.write("clients", result)


if __name__ == "__main__":
    main()
