"""Real clients push their metrics to a broker that asks for them: ours, librdkafka's, Java's and franz-go's.

Each client does a little work until the broker has its metrics. The names of the metrics are compared between Apache
Kafka, which has a plugin that writes them to a file, and Headrace, which serves them at its metrics endpoint.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import confluent_kafka
from acls.session import until
from prometheus_client.parser import text_string_to_metric_families

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.broker.telemetry.names import metric_name

from .clients import Client

#: By client id: a metric that the client must push.
WANTED: Mapping[str, str] = {
    "ours-producer": "org.apache.kafka.producer.topic.record.send.total",
    "ours-consumer": "org.apache.kafka.consumer.fetch.manager.records.consumed.total",
    "ours-admin": "org.apache.kafka.admin.client.connection.count",
    "librdkafka-producer": "org.apache.kafka.producer.node.request.latency.avg",
    "librdkafka-consumer": "org.apache.kafka.consumer.coordinator.assigned.partitions",
    "java-producer": "org.apache.kafka.producer.topic.record.send.total",
    "java-consumer": "org.apache.kafka.consumer.fetch.manager.records.lag.avg",
    "franz-go": "org.apache.kafka.consumer.node.request.latency.avg",
}
#: By client id: names of metrics, as the metrics endpoint writes them.
Names = Mapping[str, frozenset[str]]
_TOPIC = "pushed"
_PATIENCE_S = 90.0
#: franz-go pushes once per second, and leaves out what has not changed.
_SETTLED_S = 6.0


class Work:
    """Clients that are busy. The work of those in this process is done by calls of :meth:`do`."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def add(self, *steps: Callable[[], object]) -> None:
        self._steps += steps

    def do(self) -> None:
        for step in self._steps:
            step()


@contextlib.contextmanager
def busy_clients(address: str, processes: Sequence[Sequence[str]]) -> Iterator[Work]:
    """
    :param processes: programs with clients. Each gets the address and the topic, and ends when its standard input does.
    """
    work = Work()
    with contextlib.ExitStack() as stack:
        _subscribe(address)
        admin = stack.enter_context(Admin(bootstrap_servers=address, client_id="ours-admin"))
        admin.create_topic(_TOPIC)
        for command in processes:
            stack.enter_context(_process([*command, address, _TOPIC]))
        _add_ours(work, address, admin, stack)
        _add_librdkafka(work, address, stack)
        yield work


def _add_ours(work: Work, address: str, admin: Admin, stack: contextlib.ExitStack) -> None:
    producer = stack.enter_context(Producer(bootstrap_servers=address, client_id="ours-producer"))
    reading = {"bootstrap.servers": address, "client.id": "ours-consumer", "auto.offset.reset": "earliest"}
    consumer = stack.enter_context(Consumer(config=reading))
    consumer.assign([TopicPartition(_TOPIC, 0)])
    work.add(lambda: producer.send(_TOPIC, b"v").result(30), lambda: consumer.poll(50), admin.list_topics)


def _add_librdkafka(work: Work, address: str, stack: contextlib.ExitStack) -> None:
    common = {"bootstrap.servers": address, "log_level": 4}
    producer = confluent_kafka.Producer({**common, "client.id": "librdkafka-producer"})
    reading = {"client.id": "librdkafka-consumer", "group.id": "librdkafka", "auto.offset.reset": "earliest"}
    consumer = stack.enter_context(contextlib.closing(confluent_kafka.Consumer({**common, **reading})))
    consumer.subscribe([_TOPIC])
    work.add(lambda: producer.produce(_TOPIC, b"v"), lambda: producer.poll(0.01), lambda: consumer.poll(0.05))


@contextlib.contextmanager
def _process(command: Sequence[str]) -> Iterator[None]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            yield
            process.communicate(b"\n", timeout=60)
        finally:
            process.kill()
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with the exit code {process.returncode}")


def _subscribe(address: str) -> None:
    # franz-go takes only prefixes: it does not understand the "*" that Apache Kafka sends for all metrics.
    with Client(address, "probe") as probe:
        match = f"client_id={'|'.join(WANTED)}"
        done = probe.alter_subscription("all", metrics="org.apache.kafka.", interval_ms="500", match=match)
        assert done == "none", done
    with Client(address, next(iter(WANTED))) as one:
        until(lambda: one.get(None)["metrics"], "the broker knows the subscription")


# -- what a broker has got


def received_by_apache(received: Path) -> Names:
    """
    :param received: the file of the plugin.
    """
    names = defaultdict(set)
    for line in received.read_text().splitlines() if received.exists() else ():
        client_id, _, name = line.partition(" ")
        names[client_id].add(metric_name(name))
    return {client_id: frozenset(found) for client_id, found in names.items()}


def received_by_headrace(endpoint: str) -> Names:
    """
    :param endpoint: the address of the metrics endpoint.
    """
    with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    names = defaultdict(set)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "client_instance_id" in sample.labels:
                names[sample.labels["client_id"]].add(family.name)
    return {client_id: frozenset(found) for client_id, found in names.items()}


def pushed(address: str, processes: Sequence[Sequence[str]], received: Callable[[], Names]) -> Names:
    """Lets the clients work until the broker has the wanted metrics and no new names arrive. Returns all names.

    :raises TimeoutError: if a client does not push its metric in time.
    """
    names: dict[str, frozenset[str]] = dict.fromkeys(WANTED, frozenset())
    ends_at = time.monotonic() + _PATIENCE_S
    with busy_clients(address, processes) as work:
        while missing := [each for each, name in WANTED.items() if metric_name(name) not in names[each]]:
            if time.monotonic() > ends_at:
                raise TimeoutError(f"not within {_PATIENCE_S} s: {missing} push their metrics")
            _work_and_look(work, received, names)
        settled_at = time.monotonic() + _SETTLED_S
        while time.monotonic() < min(settled_at, ends_at):
            if _work_and_look(work, received, names):
                settled_at = time.monotonic() + _SETTLED_S
    return names


def _work_and_look(work: Work, received: Callable[[], Names], names: dict[str, frozenset[str]]) -> bool:
    """Adds the names that the broker has got. Returns whether there were new ones."""
    work.do()
    found = received()
    before = dict(names)
    for each in WANTED:
        names[each] |= found.get(each, frozenset())
    return names != before


def differences(apache: Names, headrace: Names) -> list[str]:
    """What one broker has got and the other has not."""
    lines = []
    for client_id in WANTED:
        only_apache, only_headrace = apache[client_id] - headrace[client_id], headrace[client_id] - apache[client_id]
        for broker, only in (("Apache Kafka", only_apache), ("Headrace", only_headrace)):
            if only:
                lines.append(f"{client_id}: only {broker} has {', '.join(sorted(only))}")
    return lines
