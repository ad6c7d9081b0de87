"""Headrace's Spark source, sink and views against Spark's own Kafka connector, on one Headrace broker.

    .venv/bin/python bench/pipeline.py [--quick] [--write] [--only ROW ...]

``--write`` puts the table into docs/performance.md. Close other programs: on two cores they change the numbers. Each
side has a Spark session for the whole run (``pipeline_sides.py``) and does the same work with the same topics
(``pipeline_worker.py``, ``pipeline_views.py``, ``pipeline_join.py``). The sides take turns, and the best round of each
counts; the first two rounds only warm up. The run takes about fifteen minutes. The peer is fetched at the first run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import loads
import numpy as np
import pipeline_latency
import pipeline_sides
import pyarrow as pa
import report
import servers
from json_values import json_objects
from pipeline_sides import Side
from report import Row, Table

from headrace import Producer

#: As :mod:`pipeline_worker` has them, which cannot be imported without a session.
KEYS = 10_000
NO_BAR = float("inf")
WARM_ROUNDS = 2
NOTE = (
    "Spark 4.0.0 with its connector against ours on Spark 4.3.0, each `local[*]` with a heap of 2 GiB and two shuffle "
    f"partitions; a topic of four partitions, values of 100 B, {KEYS:,} distinct keys, no compression; all other "
    "settings are the defaults of each side. Read: `count(*), sum(length(value)), count(DISTINCT key)`, by "
    "availableNow in `foreachBatch`. Write: rows made up by `spark.range`. Replay: `key, count(*)` into SQLite; the "
    "peer upserts by SQLAlchemy in `foreachBatch`. Join: JSON, `SELECT p.number, p.amount, u.name, u.country FROM "
    "payments p JOIN users u ON p.user = u.id`; the peer joins the stream with the newest users as they are at the "
    "start, and its rows do not follow later changes of users; ours do. Seen: JSON, one partition, `count` and `max` "
    "by 100 keys; when a reader that asks SQLite every two milliseconds sees an event, the peer with its shortest "
    "trigger."
)


def rows() -> dict[str, Row]:
    return {
        "batch": Row("batch read, 5 M records with keys", "rows/s", ">=", 2.5),
        "columns": Row("the same, ours told the columns (`.schema`)", "rows/s", ">=", NO_BAR),
        "stream": Row("stream read by availableNow, the same", "rows/s", ">=", 2),
        "write": Row("write 2 M rows", "rows/s", ">=", 1.5),
        "replay": Row("Kappa replay of a keyed count into SQLite, 5 M events", "events/s", ">=", 1.5),
        "join": Row("events ⋈ table (1 M keys), 2 M events, Kappa replay into SQLite", "events/s", ">=", 1.5),
        "seen": Row("from produce to seen in the view, p50, speed layer, 1,000 events/s", "ms", "<=", 1),
        "seen p99": Row("the same, p99", "ms", "<=", NO_BAR),
    }


def fill(server: servers.Server, topic: str, records: int) -> None:
    """Keys in no order; each value is different, as real ones are."""
    loads.create_topic(server, topic)
    random = np.random.default_rng(6)
    with Producer(bootstrap_servers=server.address) as producer:
        for first in range(0, records, 250_000):
            count = min(250_000, records - first)
            bytes_ = random.integers(97, 123, count * loads.RECORD_BYTES, dtype=np.uint8)
            ends = np.arange(0, (count + 1) * loads.RECORD_BYTES, loads.RECORD_BYTES, dtype=np.int32)
            values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(bytes_)])
            keys = pa.array(random.integers(0, KEYS, count)).cast(pa.string()).cast(pa.binary())
            producer.send_arrow(topic, pa.table({"key": keys, "value": values})).result()


def fill_join(server: servers.Server, users: int, payments: int) -> None:
    """Users with one record each, and payments of random users."""
    random = np.random.default_rng(17)
    for topic, count in (("users", users), ("payments", payments)):
        loads.create_topic(server, topic)
        with Producer(bootstrap_servers=server.address) as producer:
            for first in range(0, count, 250_000):
                numbers = np.arange(first, min(first + 250_000, count))
                if topic == "users":
                    parts = {"id": numbers, "name": ("user ", numbers), "country": ("land ", numbers % 200)}
                    keys = pa.array(numbers).cast(pa.string()).cast(pa.binary())
                else:
                    of_user, amounts = (random.integers(0, high, len(numbers)) for high in (users, 10_000))
                    parts = {"number": numbers, "user": of_user, "amount": amounts}
                    keys = pa.nulls(len(numbers), pa.binary())
                producer.send_arrow(topic, pa.table({"key": keys, "value": json_objects(parts)})).result()


def rounds_of(sides: Mapping[str, Side], rounds: int, do: Callable[[Side, int], Any]) -> Iterator[tuple[str, Any]]:
    """What each side did, in turns; the first rounds only warm it."""
    for number in range(-WARM_ROUNDS, rounds):
        for name, side in sides.items():
            done = do(side, number)
            if number >= 0:
                yield name, done


def best(table: Table, key: str, results: Iterator[tuple[str, Mapping[str, Any]]]) -> None:
    rates: dict[str, float] = {}
    for name, done in results:
        rates[name] = max(rates.get(name, 0.0), done["records"] / done["seconds"])
    for name, rate in rates.items():
        table.put(name, key, rate)


class Bench:
    def __init__(self, table: Table, server: servers.Server, sides: Mapping[str, Side], scale: float, rounds: int):
        self.table, self.server, self.sides, self.rounds = table, server, sides, rounds
        self.records, self.rows, self.events = int(5_000_000 * scale), int(2_000_000 * scale), int(15_000 * scale)

    def batch(self) -> None:
        best(self.table, "batch", rounds_of(self.sides, self.rounds, self._read("batch")))

    def columns(self) -> None:
        def read(side: Side, _number: int) -> Any:
            columns = "key BINARY, value BINARY" if side.name == "headrace" else ""
            return self._checked(side.ask("batch", address=self.server.address, topic="full", columns=columns))

        best(self.table, "columns", rounds_of(self.sides, self.rounds, read))

    def stream(self) -> None:
        best(self.table, "stream", rounds_of(self.sides, self.rounds, self._read("stream")))

    def _read(self, load: str) -> Callable[[Side, int], Any]:
        return lambda side, _number: self._checked(side.ask(load, address=self.server.address, topic="full"))

    def _checked(self, done: Mapping[str, Any]) -> Mapping[str, Any]:
        found = (done["records"], done["value_bytes"], done["keys"])
        assert found == (self.records, self.records * loads.RECORD_BYTES, KEYS), found
        return done

    def write(self) -> None:
        def write(side: Side, number: int) -> Any:
            topic = f"written-{side.name}-{number + WARM_ROUNDS}"
            loads.create_topic(self.server, topic)
            return side.ask("write", address=self.server.address, topic=topic, rows=self.rows)

        best(self.table, "write", rounds_of(self.sides, self.rounds, write))

    def replay(self) -> None:
        def replay(side: Side, number: int) -> Any:
            done = side.ask("replay", address=self.server.address, topic="full", number=number + WARM_ROUNDS)
            assert (done["records"], done["keys"]) == (self.records, KEYS), done
            return done

        best(self.table, "replay", rounds_of(self.sides, self.rounds, replay))

    def join(self) -> None:
        users = self.rows // 2
        fill_join(self.server, users, self.rows)
        totals = set()

        def join(side: Side, number: int) -> Any:
            done = side.ask("join", address=self.server.address, number=number + WARM_ROUNDS)
            totals.add(done["total"])
            assert (done["records"], len(totals)) == (self.rows, 1), done
            return done

        best(self.table, "join", rounds_of(self.sides, self.rounds, join))

    def seen(self) -> None:
        for name, side in self.sides.items():
            loads.create_topic(self.server, f"seen-{name}", 1)
            latency = pipeline_latency.measure(self.server, side, f"seen-{name}", self.events)
            self.table.put(name, "seen", latency.p50_ms)
            self.table.put(name, "seen p99", latency.p99_ms)


def main() -> None:
    parts = ["batch", "columns", "stream", "write", "replay", "join", "seen"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, to try the script")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    parser.add_argument("--only", choices=parts, nargs="+", help="some rows of it")
    parser.add_argument("--side", choices=["apache", "headrace"], help="one side of it, to tune that")
    options = parser.parse_args()
    pipeline_sides.fetch_peer()
    table = Table(rows(), peer="Spark 4.0.0 with its connector")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        server = stack.enter_context(servers.headrace(folder / "data"))
        names = [options.side] if options.side else ["apache", "headrace"]
        sides = {name: stack.enter_context(Side(name, folder)) for name in names}
        bench = Bench(table, server, sides, *((0.1, 1) if options.quick else (1.0, 3)))
        wanted = options.only or parts
        if set(wanted) & {"batch", "columns", "stream", "replay"}:
            fill(server, "full", bench.records)
        for part in wanted:
            getattr(bench, part)()
    result = table.markdown(NOTE)
    print("\n" + result)
    if options.write:
        report.write("pipeline", result)


if __name__ == "__main__":
    main()
