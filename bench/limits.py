"""Measures the cost and the exactness of quotas: Headrace against Apache Kafka 4.3.0 in one run. Prints tables.

    .venv/bin/python bench/limits.py [--quick] [--write] [--only PART ...]

``--write`` puts the tables into docs/performance.md. Kafka's own ``kafka-configs`` sets the quotas on both sides.

========  ============================================================================================================
cost      small requests of Headrace with quotas on all entities that are not exceeded, against Headrace without any
small     the same requests, Headrace against Apache Kafka, both with these quotas
accuracy  the rate of a producer with a quota of 10 MB/s over 33 s, three times the windows of a rate
together  a producer and a consumer with quotas, and beside them a client without: its p99 with and without them
========  ============================================================================================================
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import loads
import quota_loads
import report
import servers
from quota_loads import LIMITED, MB, SPAN_SECONDS, LimitedProducer
from report import Row, Table
from turns import alternate, warm

Sides = Mapping[str, servers.Server]

#: So much that nobody exceeds it.
_PLENTY = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}
_ALL_ENTITIES = (
    "--entity-type users --entity-default --entity-type clients --entity-default",
    "--entity-type users --entity-default",
    "--entity-type clients --entity-default",
)
#: More specific than the entities above, so that this quota counts beside them.
_LIMITED_CLIENT = f"--entity-type users --entity-default --entity-type clients --entity-name {LIMITED}"
_QUOTA_BYTES = 10 * MB
_NEXT_BYTES = 2 * MB
#: More than the consumer can read: at the end of a topic it would wait for records, and then begin again.
_READ_BYTES = 60 * _NEXT_BYTES


def rows() -> dict[str, Row]:
    return {
        "small": Row("Produce requests of one record with quotas on all entities", "requests/s", ">="),
        "small cpu": Row("broker CPU of such a request", "µs", "<=", 0.9),
        "held": Row("a producer with a quota of 10 MB/s over 33 s", "MB/s", "<="),
        "off": Row("how far that is from the quota", "%", "<=", 1.0, limit=5.0),
        "producer": Row("beside others: a producer with a quota of 2 MB/s", "MB/s", "<="),
        "consumer": Row("beside others: a consumer with a quota of 2 MB/s", "MB/s", "<="),
        "consumer off": Row("how far that is from the quota", "%", "<=", 1.0, limit=5.0),
        "alone": Row("one record acked by a client without a quota, alone, p99", "ms", "<="),
        "beside": Row("one record acked by this client beside the two, p99", "ms", "<=", 1.0),
    }


def cost_rows() -> dict[str, Row]:
    return {
        "small": Row("Produce requests of one record, acks=all, producer-perf-test", "requests/s", ">=", 0.95),
        "small cpu": Row("broker CPU of such a request", "µs", "<="),
    }


def cost(scale: float) -> Table:
    """The column of the peer is Headrace without quotas."""
    table = Table(cost_rows(), peer="Headrace without quotas")
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as name,
        servers.headrace(Path(name) / "without") as without,
        servers.headrace(Path(name) / "with") as limited,
    ):
        _limit_everyone(limited)
        _small_requests(table, {"apache": without, "headrace": limited}, scale, rounds=10)
    return table


def small(table: Table, sides: Sides, scale: float) -> None:
    for server in sides.values():
        _limit_everyone(server)
    _small_requests(table, sides, scale, rounds=6)


def _limit_everyone(server: servers.Server) -> None:
    for entity in _ALL_ENTITIES:
        quota_loads.set_quotas(server, entity, _PLENTY)


def _small_requests(table: Table, sides: Sides, scale: float, rounds: int) -> None:
    count = int(100_000 * scale)
    for server in sides.values():
        loads.create_topic(server, "small", 1)
    warm(sides, lambda server: loads.one_record_a_request(server, "small", count), rounds=2)
    results = alternate(sides, lambda server: loads.one_record_a_request(server, "small", count), rounds=rounds)
    for side, rates in results.items():
        table.put(side, "small", max(rate.per_second for rate in rates))
        table.put(side, "small cpu", min(rate.broker_cpu_seconds for rate in rates))


def accuracy(table: Table, sides: Sides, scale: float) -> None:
    off: dict[str, float] = {}
    for side, server in sides.items():
        loads.create_topic(server, "accuracy", 1)
        quota_loads.set_quotas(server, _LIMITED_CLIENT, {"producer_byte_rate": _QUOTA_BYTES})
        producer = LimitedProducer(server, "accuracy", _QUOTA_BYTES)
        held = quota_loads.held_rate(producer, SPAN_SECONDS * max(1, round(3 * scale)))
        off[side] = _off_percent(held, _QUOTA_BYTES)
        table.put(side, "held", held / MB)
        table.put(side, "off", off[side])
    if "headrace" in off:
        table.remark(f"Headrace holds a quota of 10 MB/s with {_within(off['headrace'])}.")


def _off_percent(held: float, quota: float) -> float:
    return abs(held / quota - 1) * 100


def _within(off_percent: float) -> str:
    return f"{off_percent:.2g} % (within 5 %: {'reached' if off_percent <= 5 else '**not reached**'})"


def together(table: Table, sides: Sides, scale: float) -> None:
    seconds = SPAN_SECONDS * max(1, round(3 * scale))
    limits = {"producer_byte_rate": _NEXT_BYTES, "consumer_byte_rate": _NEXT_BYTES}
    for side, server in sides.items():
        for topic in ("free", "next"):
            loads.create_topic(server, topic, 1)
        quota_loads.fill(server, "read", _READ_BYTES)
        quota_loads.set_quotas(server, _LIMITED_CLIENT, limits)
        for _ in range(5 if side == "apache" else 0):
            loads.one_record_acked(server, "free", 2_000)
        table.put(side, "alone", quota_loads.free_client(server, "free", seconds).p99_ms)
        with (
            quota_loads.limited_clients(server, "next", "read", _NEXT_BYTES) as (producer, consumer),
            ThreadPoolExecutor(2) as pool,
        ):
            rates = {"producer": pool.submit(producer.rate, seconds), "consumer": pool.submit(consumer.rate, seconds)}
            table.put(side, "beside", quota_loads.free_client(server, "free", seconds).p99_ms)
            for row, rate in rates.items():
                table.put(side, row, rate.result() / MB)
        off = _off_percent(rates["consumer"].result(), _NEXT_BYTES)
        table.put(side, "consumer off", off)
        if side == "headrace":
            table.remark(f"Headrace holds a consumer's quota of 2 MB/s with {_within(off)}.")


#: The parts that compare Headrace with Apache Kafka, in order. A part fills the rows that it measures.
PARTS: dict[str, Callable[[Table, Sides, float], None]] = {"small": small, "accuracy": accuracy, "together": together}
_COST = "cost"
_CHOICES = [_COST, *PARTS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, to try the script")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    parser.add_argument("--only", nargs="+", choices=_CHOICES, default=_CHOICES, help="some parts of it")
    parser.add_argument("--side", choices=["apache", "headrace"], help="measure one side alone")
    options = parser.parse_args()
    scale = 0.1 if options.quick else 1.0
    servers.fetch_apache()
    results: list[str] = []
    if _COST in options.only:
        results.append(cost(scale).markdown())
    if parts := [part for part in options.only if part in PARTS]:
        table = Table(rows())
        with _brokers() as sides:
            chosen = {side: server for side, server in sides.items() if options.side in (None, side)}
            for part in parts:
                PARTS[part](table, chosen, scale)
        results.append(table.markdown())
    result = "\n\n".join(results)
    print("\n" + result)
    if options.write:
        report.write("limits", result)


@contextmanager
def _brokers() -> Iterator[Sides]:
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as name,
        servers.apache(Path(name) / "apache") as apache,
        servers.headrace(Path(name) / "headrace") as headrace,
    ):
        yield {"apache": apache, "headrace": headrace}


if __name__ == "__main__":
    main()
