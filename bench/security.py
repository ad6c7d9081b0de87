"""Headrace's broker against Apache Kafka 4.3.0 over TLS 1.3, both in one run on this machine. Prints a table of ratios.

    .venv/bin/python bench/security.py [--quick] [--write] [--only PART ...]

``--write`` puts the table into docs/performance.md. Both brokers have one key (RSA, 2,048 bits) and the same listeners:
SSL, MUTUAL, which demands a certificate of the client, and SASL_PLAINTEXT. A part of the benchmark is a function in
``PARTS``, with its rows in ``rows``. To measure another kind of protection, add a part and its rows. The part ``acls``
(``acl_cost.py``) has a table of its own: it compares Headrace with ACLs and Headrace without.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import acl_cost
import loads
import report
import secured_loads
import servers
from report import Row, Table
from secured_servers import MUTUAL, TLS, Secured, running_brokers
from turns import alternate, put_best_rates, warm

Sides = Mapping[str, Secured]

#: librdkafka's own queue sizes, and a short pause when its queue is full; by default the pause is a second. If the
#: queue had no limit, a fast broker would make librdkafka fill new memory, and the row would measure page faults.
_SHORT_PAUSES = {"queued.max.messages.kbytes": 65_536, "fetch.queue.backoff.ms": 5}


def rows() -> dict[str, Row]:
    return {
        "produce": Row("produce over TLS, 100 B, 4 partitions, acks=all, librdkafka", "records/s", ">=", 1.2),
        "produce cpu": Row("broker CPU for that produce", "s", "<=", 0.8),
        "consume": Row("consume over TLS, librdkafka", "records/s", ">=", 1.0),
        "consume cpu": Row("broker CPU for that consume", "s", "<=", 0.8),
        "consume java": Row("consume over TLS, consumer-perf-test", "records/s", ">=", 1.0),
        "consume java cpu": Row("broker CPU for that consume", "s", "<=", 0.8),
        "handshakes": Row("TLS handshakes", "handshakes/s", ">=", 1.0),
        "handshakes cpu": Row("broker CPU of such a handshake", "µs", "<="),
        "mutual": Row("TLS handshakes with certificates of clients", "handshakes/s", ">=", 1.0),
        "mutual cpu": Row("broker CPU of such a handshake", "µs", "<="),
        "logins": Row("SCRAM-SHA-256 logins, without TLS", "logins/s", ">=", 1.0),
        "logins cpu": Row("broker CPU of such a login", "µs", "<="),
        "ack p50": Row("one record acked over TLS, p50", "ms", "<=", 1.1),
        "ack p99": Row("one record acked over TLS, p99", "ms", "<=", 1.0),
    }


def bulk(table: Table, sides: Sides, scale: float) -> None:
    count = int(2_000_000 * scale)
    running = {side: secured.over(TLS) for side, secured in sides.items()}
    for server in running.values():
        for topic in ("warm", "bulk"):
            loads.create_topic(server, topic)
    warm(running, lambda server: loads.produce(server, "warm", count), rounds=2)
    produced = alternate(running, lambda server: loads.produce(server, "bulk", count), rounds=4)
    put_best_rates(table, "produce", "produce cpu", produced)
    warm(running, lambda server: loads.consume(server, "warm", count, _SHORT_PAUSES), rounds=2)
    consumed = alternate(running, lambda server: loads.consume(server, "bulk", count, _SHORT_PAUSES), rounds=4)
    put_best_rates(table, "consume", "consume cpu", consumed)
    by_java = alternate(sides, lambda secured: secured_loads.consume_by_java(secured, "bulk", count), rounds=4)
    put_best_rates(table, "consume java", "consume java cpu", by_java)


def handshakes(table: Table, sides: Sides, scale: float) -> None:
    count = int(1_000 * scale)
    for listener, key in ((TLS, "handshakes"), (MUTUAL, "mutual")):
        if "apache" in sides:
            for _ in range(2):
                secured_loads.handshakes(sides["apache"], listener, count)
        done = alternate(sides, lambda secured: secured_loads.handshakes(secured, listener, count), rounds=4)  # noqa: B023
        put_best_rates(table, key, f"{key} cpu", done)


def logins(table: Table, sides: Sides, scale: float) -> None:
    count = int(2_000 * scale)
    for secured in sides.values():
        secured_loads.make_user(secured)
    for _ in range(3 if "apache" in sides else 0):
        secured_loads.scram_logins(sides["apache"], count)
    done = alternate(sides, lambda secured: secured_loads.scram_logins(secured, count), rounds=4)
    put_best_rates(table, "logins", "logins cpu", done)


def acks(table: Table, sides: Sides, scale: float) -> None:
    count = int(2_000 * scale)
    for secured in sides.values():
        for topic in ("ack-warm", "ack"):
            loads.create_topic(secured.over(TLS), topic, 1)
    for _ in range(10 if "apache" in sides else 0):
        secured_loads.one_record_acked(sides["apache"], "ack-warm", count)
    acked = alternate(sides, lambda secured: secured_loads.one_record_acked(secured, "ack", count), rounds=11)
    for side, latencies in acked.items():
        table.put(side, "ack p50", statistics.median(latency.p50_ms for latency in latencies))
        table.put(side, "ack p99", statistics.median(latency.p99_ms for latency in latencies))


#: The parts of the benchmark, in order. A part fills the rows that it measures.
PARTS: dict[str, Callable[[Table, Sides, float], None]] = {
    "bulk": bulk,
    "handshakes": handshakes,
    "logins": logins,
    "acks": acks,
}
_ACLS = "acls"
_CHOICES = [*PARTS, _ACLS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, to try the script")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    parser.add_argument("--only", nargs="+", choices=_CHOICES, default=_CHOICES, help="some parts of it")
    parser.add_argument("--side", choices=["apache", "headrace"], help="measure one side alone")
    options = parser.parse_args()
    scale = 0.1 if options.quick else 1.0
    results: list[str] = []
    if parts := [part for part in options.only if part in PARTS]:
        results.append(_compare(parts, scale, options.side))
    if _ACLS in options.only:
        results.append(acl_cost.measure(scale).markdown())
    result = "\n\n".join(results)
    print("\n" + result)
    if options.write:
        report.write("security", result)


def _compare(parts: list[str], scale: float, only_side: str | None) -> str:
    """The table of both brokers."""
    table = Table(rows())
    servers.fetch_apache()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, running_brokers(Path(name)) as sides:
        chosen = {side: secured for side, secured in sides.items() if only_side in (None, side)}
        for part in parts:
            PARTS[part](table, chosen, scale)
    return table.markdown()


if __name__ == "__main__":
    main()
