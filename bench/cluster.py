"""Three brokers of Headrace against three of Apache Kafka 4.3.0, both in one run on this machine.

    .venv/bin/python bench/cluster.py [--quick] [--write] [--only ROW] [--side SIDE] [--json]

Prints a table of ratios. ``--write`` puts the table into docs/performance.md; ``--json`` prints the numbers as JSON at
the end. ``--quick`` does a little of everything, to check that the script works. Close other programs: six brokers
share the cores already. Apache Kafka is warmed up before each load. The two take turns; the best round of each counts,
or the median or mean where the best round would flatter. ``cluster_sides.py`` starts the brokers, ``cluster_loads.py``
defines what is measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import cluster_loads
import cluster_sides
import loads
import report
import servers
from cluster_sides import BROKERS, Cluster, Start
from report import Row, Table
from turns import alternate

SESSION_TIMEOUT_MS = 6_000
#: Of the whole run; on a quiet machine it takes less than 12 minutes.
_LIMIT_SECONDS = 40 * 60
SETTINGS: dict[str, dict[str, str]] = {
    "apache": {
        "broker.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "controller.quorum.fetch.timeout.ms": str(SESSION_TIMEOUT_MS),
    },
    "headrace": {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)},
}
NOTE = (
    "Apache: three KRaft nodes, each broker and controller, a heap of 1 GiB. Headrace: `headrace start --brokers 3`; "
    "its memory is that of the three and of their parent, which serves the tree. Topics have min.insync.replicas=2. "
    f"Rows with a session timeout: {SESSION_TIMEOUT_MS // 1000} s on both sides (Apache's broker.session.timeout.ms "
    "and controller.quorum.fetch.timeout.ms), and three `headrace start` on one `headrace zookeeper`, so that nobody "
    "knows of a death but by the session. All else is as each side has it by default."
)
_ON_DEFAULTS = ("produce", "ack", "memory", "behind", "partitions")
ROWS = (*_ON_DEFAULTS, "pause", "deaths")


@dataclasses.dataclass(frozen=True)
class Scale:
    records: int = 1_000_000
    acks: int = 1_000
    partitions: int = 1_000
    behind: int = 2_000_000
    rounds: int = 3
    deaths: int = 5
    warm_rounds: int = 3


QUICK = Scale(records=50_000, acks=100, partitions=50, behind=50_000, rounds=1, deaths=1, warm_rounds=0)


def rows(scale: Scale) -> dict[str, Row]:
    count, behind = f"{scale.partitions:,}", f"{scale.behind:,}"
    return {
        "produce": Row("produce, RF 3, acks=all, 100 B, 4 partitions, librdkafka", "records/s", ">=", 1.3),
        "produce cpu": Row("CPU of the three for that produce", "s", "<="),
        "ack p50": Row("one record acked, RF 3, p50", "ms", "<=", 1.0),
        "ack p99": Row("one record acked, RF 3, p99", "ms", "<=", 0.6),
        "memory": Row("memory of the three after load (PSS)", "MB", "<=", 1 / 6),
        "resident": Row("the same, what they share counted each time (RSS)", "MB", "<="),
        "partitions": Row(f"creating {count} partitions, RF 3, until all have leaders", "s", "<=", 1.0),
        "leader": Row("`kill -9` of a leader until the next ack, same session timeout", "s", "<=", 1.0),
        "controller": Row("`kill -9` of the controller until the next topic, same session timeout", "s", "<=", 1.0),
        "controller by default": Row("the same, `--brokers 3` and defaults", "s", "<="),
        "pause": Row("longest pause of acks when one of `--brokers 3` is killed with -9, defaults", "s", "<=", 1 / 3),
        "behind": Row(f"a broker that missed {behind} records, from its start until in the ISR", "s", "<=", 1.0),
        "new replica": Row(f"a new replica of {behind} records, until in the ISR", "s", "<=", 1.0),
    }


class Run:
    def __init__(self, scale: Scale, wanted: tuple[str, ...], sides: tuple[str, ...]) -> None:
        self.table = Table(rows(scale))
        self._scale, self._wanted, self._sides = scale, wanted, sides
        self._started = time.perf_counter()

    def progress(self, text: str) -> None:
        print(f"[{time.perf_counter() - self._started:4.0f} s] {text}", flush=True)

    def wants(self, *names: str) -> bool:
        return any(name in self._wanted for name in names)

    def all_rows(self, folder: Path) -> None:
        starts: dict[str, Start] = {"apache": cluster_sides.apache, "headrace": cluster_sides.headrace}
        if self.wants(*_ON_DEFAULTS):
            with self._running(starts, folder / "defaults", {}) as running:
                self._on_defaults(running)
        if self.wants("pause"):
            self._pauses(starts, folder)
        if self.wants("deaths"):
            starts = {"apache": cluster_sides.apache, "headrace": cluster_sides.headrace_apart}
            with self._running(starts, folder / "deaths", SETTINGS) as running:
                self._deaths(running)

    def _running(self, starts: Mapping[str, Start], folder: Path, settings: Mapping[str, dict[str, str]]) -> _Running:
        self.progress(f"starting three brokers of {' and three of '.join(self._sides)}")
        return _Running({side: starts[side] for side in self._sides}, folder, settings)

    def _on_defaults(self, running: dict[str, Cluster]) -> None:
        if self.wants("produce", "memory"):
            self._produce(running)
        if self.wants("ack"):
            self._ack(running)
        if self.wants("behind"):
            self._behind(running)
        if self.wants("partitions"):
            self._partitions(running)

    def _each(self, running: Mapping[str, Cluster], name: str, partitions: int) -> None:
        for cluster in running.values():
            cluster_loads.create_topic(cluster, name, partitions)

    def _warm(self, running: Mapping[str, Cluster], load: Callable[[Cluster], object]) -> None:
        if "apache" in running:
            for _ in range(self._scale.warm_rounds):
                load(running["apache"])

    def _produce(self, running: dict[str, Cluster]) -> None:
        self.progress("produce")
        self._each(running, "bulk", loads.PARTITIONS)
        self._warm(running, lambda cluster: loads.produce(cluster, "bulk", self._scale.records))
        rates = alternate(
            running, lambda cluster: loads.produce(cluster, "bulk", self._scale.records), rounds=self._scale.rounds
        )
        for side, each in rates.items():
            best = max(each, key=lambda rate: rate.per_second)
            self.table.put(side, "produce", best.per_second)
            self.table.put(side, "produce cpu", best.broker_cpu_seconds)
        for side, cluster in running.items():
            self.table.put(side, "memory", cluster.memory_mb)
            self.table.put(side, "resident", cluster.resident_mb)

    def _ack(self, running: dict[str, Cluster]) -> None:
        self.progress("acks")
        self._each(running, "acked", 1)
        for _ in range(2):
            self._warm(running, lambda cluster: cluster_loads.ack(cluster, "acked", self._scale.acks))
        rounds = 2 * self._scale.rounds + 1
        acked = alternate(running, lambda cluster: cluster_loads.ack(cluster, "acked", self._scale.acks), rounds=rounds)
        for side, latencies in acked.items():
            self.table.put(side, "ack p50", statistics.median(latency.p50_ms for latency in latencies))
            self.table.put(side, "ack p99", statistics.median(latency.p99_ms for latency in latencies))

    def _behind(self, running: dict[str, Cluster]) -> None:
        self.progress("a broker that comes back, a new replica")
        self._each(running, "missed", loads.PARTITIONS)
        count = self._scale.behind
        for side, cluster in running.items():
            self.table.put(side, "behind", cluster_loads.follower_behind(cluster, "missed", count))
        self._warm(running, lambda cluster: cluster_loads.new_replica(cluster, f"warm-{time.time_ns()}", count // 8))
        for side, cluster in running.items():
            self.table.put(side, "new replica", cluster_loads.new_replica(cluster, "grown", count))

    def _pauses(self, starts: Mapping[str, Start], folder: Path) -> None:
        """In a new cluster each time: the parent looks after those brokers only that it has started itself."""
        pauses: dict[str, list[float]] = {side: [] for side in self._sides}
        topics: dict[str, list[float]] = {side: [] for side in self._sides}
        for victim in BROKERS[: self._scale.rounds]:
            with self._running(starts, folder / f"pause-{victim}", {}) as running:
                self._each(running, "paused", len(BROKERS))
                for side, cluster in running.items():
                    self.progress(f"broker {victim} of {side} is killed, then the controller")
                    pauses[side].append(cluster_loads.pause_of_acks(cluster, "paused", victim))
                    cluster_loads.bring_back(cluster, "paused")
                    topics[side].append(cluster_loads.controller_killed(cluster, "next"))
        for side in self._sides:
            self.progress(f"{side}, pauses: {_each_of(pauses[side])}, topics: {_each_of(topics[side])}")
            self.table.put(side, "pause", statistics.median(pauses[side]))
            self.table.put(side, "controller by default", statistics.median(topics[side]))

    def _partitions(self, running: dict[str, Cluster]) -> None:
        self.progress("many partitions")
        count = self._scale.partitions
        self._warm(
            running, lambda cluster: cluster_loads.create_partitions(cluster, f"warm-{time.time_ns()}", count // 10)
        )
        numbers = iter(range(1000))
        made = alternate(
            running,
            lambda cluster: cluster_loads.create_partitions(cluster, f"many-{next(numbers)}", count),
            rounds=self._scale.rounds,
        )
        for side, seconds in made.items():
            self.table.put(side, "partitions", statistics.median(seconds))

    def _deaths(self, running: dict[str, Cluster]) -> None:
        """The mean of some: when a broker was last heard of before it died is chance, and that is most of the time."""
        self._each(running, "led", 1)
        leaders: dict[str, list[float]] = {side: [] for side in running}
        controllers: dict[str, list[float]] = {side: [] for side in running}
        for number in range(self._scale.deaths):
            for side, cluster in running.items():
                self.progress(f"a leader of {side} is killed, then the controller ({number + 1})")
                leaders[side].append(cluster_loads.leader_killed(cluster, "led"))
                cluster_loads.bring_back(cluster, "led")
                controllers[side].append(cluster_loads.controller_killed(cluster, f"next-{number}"))
                cluster_loads.bring_back(cluster, "led")
        for side in running:
            self.progress(f"{side}, leaders: {_each_of(leaders[side])}, controllers: {_each_of(controllers[side])}")
            self.table.put(side, "leader", statistics.mean(leaders[side]))
            self.table.put(side, "controller", statistics.mean(controllers[side]))


def _each_of(seconds: list[float]) -> str:
    return " ".join(f"{one:.2f}" for one in seconds)


class _Running:
    """The clusters of all sides at once; what they wrote is gone afterwards."""

    def __init__(self, starts: Mapping[str, Start], folder: Path, settings: Mapping[str, dict[str, str]]) -> None:
        self._starts, self._folder, self._settings = starts, folder, settings
        self._stack = ExitStack()

    def __enter__(self) -> dict[str, Cluster]:
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        with self._stack as stack:
            running = {
                side: stack.enter_context(start(self._folder / side, self._settings.get(side, {})))
                for side, start in self._starts.items()
            }
            self._stack = stack.pop_all()
        return running

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of everything, to try the script")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    parser.add_argument("--only", choices=ROWS, action="append", help="a part of it; may be given again")
    parser.add_argument("--side", choices=["apache", "headrace"], help="one of the two, to work on it")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON, too")
    options = parser.parse_args()
    if options.write and (options.quick or options.only or options.side):
        parser.error("--write is for a whole run")
    sides = (options.side,) if options.side else ("apache", "headrace")
    run = Run(QUICK if options.quick else Scale(), tuple(options.only or ROWS), sides)
    servers.fetch_apache()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(_LIMIT_SECONDS)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        run.all_rows(Path(name))
    result = run.table.markdown(NOTE)
    run.progress("done")
    print("\n" + result)
    if options.json:
        print(json.dumps(_numbers(run.table)))
    if options.write:
        report.write("cluster", result)


def _numbers(table: Table) -> dict[str, dict[str, object]]:
    """By row; null where there is no bar, or nothing was measured."""
    return {
        key: {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in dataclasses.asdict(row).items()
        }
        for key, row in table.rows.items()
    }


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"the whole run took more than {_LIMIT_SECONDS // 60} minutes")


if __name__ == "__main__":
    main()
