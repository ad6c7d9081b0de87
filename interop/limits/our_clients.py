"""Our clients push their metrics to a broker that asks for them. The broker notes the names of metrics in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from acls.session import until

from headrace import Admin, Consumer, Producer, TopicPartition

from .clients import Client

#: By client id: a metric that the client must push.
_WANTED = {
    "ours-producer": "org.apache.kafka.producer.topic.record.send.total",
    "ours-consumer": "org.apache.kafka.consumer.fetch.manager.records.consumed.total",
    "ours-admin": "org.apache.kafka.admin.client.connection.count",
}
_TOPIC = "ours"


def push_to(address: str, received: Path) -> None:
    """
    :raises TimeoutError: if a client does not push its metric in time.
    """
    _subscribe(address)
    with Admin(bootstrap_servers=address, client_id="ours-admin") as admin:
        admin.create_topic(_TOPIC)
        with Producer(bootstrap_servers=address, client_id="ours-producer") as producer:
            producer.send(_TOPIC, b"v").result(30)
            _await_push(received, "ours-producer", producer.flush)
        consuming = {"client_id": "ours-consumer", "auto_offset_reset": "earliest"}
        with Consumer(bootstrap_servers=address, **consuming) as consumer:
            consumer.assign([TopicPartition(_TOPIC, 0)])
            _await_push(received, "ours-consumer", lambda: consumer.poll(100))
        _await_push(received, "ours-admin", admin.list_topics)


def _subscribe(address: str) -> None:
    with Client(address, "ours-probe") as probe:
        done = probe.alter_subscription("ours", metrics="*", interval_ms="100", match="client_id=ours-.*")
        assert done == "none", done
        until(lambda: probe.get(None)["metrics"] == ["*"], "the broker knows the subscription")


def _await_push(received: Path, client_id: str, work: Callable[[], object]) -> None:
    """Lets the client work until the broker has the metric."""

    def has_metric() -> bool:
        work()
        return received.exists() and f"{client_id} {_WANTED[client_id]}\n" in received.read_text()

    until(has_metric, f"{client_id} pushes {_WANTED[client_id]}")
