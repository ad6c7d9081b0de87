"""Clients that ask for subscriptions and push metrics (KIP-714), in order and out of order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from acls.session import until
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from headrace.protocol.compression import compress
from headrace.protocol.records import Codec

from .clients import Client, instance_id

#: What a step of a request sequence was answered.
Steps = Iterator[tuple[str, Any]]
_PRODUCERS = "org.apache.kafka.producer."
_LONG_MS = 60_000
_SHORT_MS = 100
_MAX_BYTES = 1_048_576


def _metrics() -> bytes:
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "org.apache.kafka.producer.record.send.total"
    metric.sum.aggregation_temporality = 1
    metric.sum.is_monotonic = True
    metric.sum.data_points.add(as_int=3)
    return bytes(data.SerializeToString())


def _subscribe(client: Client, metrics: str = _PRODUCERS, interval_ms: int = _LONG_MS, *, name: str = "") -> None:
    """Subscribes to the metrics of the client, and waits until the broker asks new instances for them."""
    name = name or client.client_id
    before = _probe(client)
    match = f"client_id={client.client_id}"
    done = client.alter_subscription(name, metrics=metrics, interval_ms=str(interval_ms), match=match)
    assert done == "none", done
    until(lambda: _probe(client) != before, "the broker knows the subscription")


def _unsubscribe(client: Client, name: str = "") -> None:
    before = _probe(client)
    assert client.alter_subscription(name or client.client_id, metrics=None, interval_ms=None, match=None) == "none"
    until(lambda: _probe(client) != before, "the broker has forgotten the subscription")


def _probe(client: Client) -> tuple[Any, ...]:
    answer = client.get(None)
    return answer["metrics"], answer["interval_ms"]


def _subscribed(client: Client, name: str) -> tuple[UUID, dict[str, Any]]:
    """An instance that has just got its subscription."""
    instance = instance_id(f"{client.client_id} {name}")
    answer = client.get(instance)
    assert answer["error"] == "none", answer
    return instance, answer


def without_subscription(address: str) -> Steps:
    with Client(address, "without") as client:
        instance = instance_id("without")
        yield "a client without an id", client.get(None)
        yield "a client with an id", (answer := client.get(instance))
        yield "the client asks again at once", client.get(instance)
        yield "the client pushes without being asked", client.push(instance, answer, _metrics())


def reserved_ids(address: str) -> Steps:
    with Client(address, "reserved") as client:
        yield "a push with the id 0", client.push(None, 0)
        yield "a push with the id 1", client.push(UUID(int=1), 0)
        yield "the id 1 asks", client.get(UUID(int=1))


def pushes(address: str) -> Steps:
    with Client(address, "pushes") as client:
        _subscribe(client)
        instance = instance_id("pushes")
        yield "the subscription", (answer := client.get(instance))
        yield "the first push comes early", client.push(instance, answer, _metrics())
        yield "the second push comes too early", client.push(instance, answer, _metrics())
        yield "a question after a push comes too early", client.get(instance)
        yield "the last push may come early", client.push(instance, answer, _metrics(), is_last=True)
        yield "a push after the last", client.push(instance, answer, _metrics())
        yield "after that the push comes too early", client.push(instance, answer, _metrics())
        yield "two last pushes, the first", client.push(instance, answer, is_last=True)
        yield "two last pushes, the second", client.push(instance, answer, is_last=True)
        yield "a question after the last push", client.get(instance)


def empty_pushes(address: str) -> Steps:
    with Client(address, "empty") as client:
        _subscribe(client)
        for codec in Codec:
            instance, answer = _subscribed(client, codec.name)
            yield f"nothing, {codec.name}", client.push(instance, answer, codec=codec)


def unknown_instances(address: str) -> Steps:
    with Client(address, "unknown") as client:
        _subscribe(client)
        instance = instance_id("unknown")
        yield "an unknown instance pushes", client.push(instance, 17, _metrics())
        yield "it asks at once", (answer := client.get(instance))
        yield "it pushes at once", client.push(instance, answer, _metrics())
        other = instance_id("unknown, the last push")
        yield "an unknown instance pushes for the last time", client.push(other, 17, _metrics(), is_last=True)
        yield "it pushes again", client.push(other, 17, _metrics())
        third, answer = _subscribed(client, "wrong id")
        yield "a known instance pushes with a wrong id", client.push(third, 17, _metrics())
        yield "the known instance pushes with the right id at once", client.push(third, answer, _metrics())
        yield "the known instance asks at once", client.get(third)


def compression_types(address: str) -> Steps:
    with Client(address, "compression") as client:
        _subscribe(client)
        for codec in Codec:
            instance, answer = _subscribed(client, codec.name)
            yield f"metrics, {codec.name}", client.push(instance, answer, compress(codec, _metrics()), codec=codec)
            instance, answer = _subscribed(client, f"{codec.name}, no metrics")
            yield f"no metrics, {codec.name}", client.push(instance, answer, b"\xff" * 20, codec=codec)
            yield f"no metrics, {codec.name}, asks at once", client.get(instance)["error"]
            yield f"no metrics, {codec.name}, pushes at once", client.push(instance, answer, b"\xff" * 20, codec=codec)
        for unknown in (-1, 5, 127):
            instance, answer = _subscribed(client, f"unknown {unknown}")
            yield f"compression type {unknown}", client.push(instance, answer, _metrics(), codec=unknown)
            yield f"compression type {unknown}, asks at once", client.get(instance)["error"]
            yield f"compression type {unknown}, pushes at once", client.push(instance, answer, _metrics())


def sizes(address: str) -> Steps:
    with Client(address, "sizes") as client:
        _subscribe(client)
        metrics = _metrics()
        # A string field of a Resource that nothing knows: any number of bytes that decode.
        for name, size in (("as large as allowed", _MAX_BYTES), ("too large by a byte", _MAX_BYTES + 1)):
            instance, answer = _subscribed(client, name)
            yield name, client.push(instance, answer, _padded(metrics, size))
            yield f"{name}, asks at once", client.get(instance)["error"]
            yield f"{name}, pushes at once", client.push(instance, answer, metrics)
        instance, answer = _subscribed(client, "last")
        yield "too large, for the last time", client.push(instance, answer, bytes(_MAX_BYTES + 1), is_last=True)


def _padded(metrics: bytes, size: int) -> bytes:
    """The metrics with an unknown field 15 of bytes, as long as wanted."""
    head = bytes((15 << 3 | 2,))
    rest = size - len(metrics) - len(head) - 3
    return metrics + head + bytes((rest & 0x7F | 0x80, rest >> 7 & 0x7F | 0x80, rest >> 14)) + bytes(rest)


def changed_subscriptions(address: str) -> Steps:
    with Client(address, "changed") as client:
        _subscribe(client)
        instance = instance_id("changed")
        yield "the subscription", (answer := client.get(instance))
        yield "a push", client.push(instance, answer, _metrics())
        _subscribe(client, interval_ms=2 * _LONG_MS)
        yield "a push after a change", client.push(instance, answer, _metrics())
        yield "the client asks at once", (answer := client.get(instance))
        yield "the client pushes at once", client.push(instance, answer, _metrics())
        _subscribe(client, "*", name="all of them")
        yield "the client asks after another change", client.get(instance)
        _unsubscribe(client, "all of them")
        yield "the second subscription is gone", client.get(instance)
        _unsubscribe(client)
        yield "no subscription is left", client.get(instance)


def joined_subscriptions(address: str) -> Steps:
    with Client(address, "joined") as client:
        _subscribe(client, f"{_PRODUCERS},org.apache.kafka.consumer.", 5_000, name="joined a")
        _subscribe(client, f"{_PRODUCERS},org.apache.kafka.admin.", 4_000, name="joined b")
        yield "the shortest interval and all metrics", client.get(instance_id("joined two"))
        _subscribe(client, "", 3_000, name="joined c")
        yield "no metrics, a shorter interval", client.get(instance_id("joined three"))
        _subscribe(client, "*", 3_600_000, name="joined d")
        yield "all metrics, a longer interval", client.get(instance_id("joined four"))
    for name in "abcd":
        with Client(address, "joined") as client:
            _unsubscribe_quietly(client, f"joined {name}")


def _unsubscribe_quietly(client: Client, name: str) -> None:
    assert client.alter_subscription(name, metrics=None, interval_ms=None, match=None) == "none"


def matches(address: str) -> Steps:
    """Which clients a subscription selects, by the software that they name in ApiVersions."""
    with Client(address, "matching") as probe:
        wanted = "client_software_name=match.*,client_software_version=2[.].*,client_source_address=127[.]0[.]0[.]1"
        done = probe.alter_subscription("matching", metrics=_PRODUCERS, interval_ms="1000", match=wanted)
        yield "the subscription", done
        with Client(address, "matching", "matched", "2.1") as matched:
            until(lambda: matched.get(None)["metrics"], "the broker knows the subscription")
            yield "all match", matched.get(None)
        for software, version in (("matched", "3.1"), ("other", "2.1"), ("a-matched", "2.1"), ("MATCHED", "2.1")):
            with Client(address, "matching", software, version) as other:
                yield f"{software} {version}", other.get(None)
        _unsubscribe_quietly(probe, "matching")


def short_intervals(address: str) -> Steps:
    with Client(address, "short") as client:
        _subscribe(client, interval_ms=_SHORT_MS)
        instance, answer = _subscribed(client, "short")
        for number in range(2):
            time.sleep(2 * _SHORT_MS / 1000)
            yield f"a push after the interval, {number}", client.push(instance, answer, _metrics())
        time.sleep(2 * _SHORT_MS / 1000)
        yield "a question after the interval", client.get(instance)


def reconnections(address: str) -> Steps:
    with Client(address, "reconnects") as second:
        with Client(address, "reconnects") as first:
            _subscribe(first)
            instance, answer = _subscribed(first, "reconnects")
            yield "a push over the first connection", first.push(instance, answer, _metrics())
            yield "a push over the second", second.push(instance, answer, _metrics())
            yield "a question over the second", second.get(instance)
        time.sleep(0.5)
        yield "a push when the first is closed", second.push(instance, answer, _metrics())
        yield "a question when the first is closed", second.get(instance)
    with Client(address, "reconnects") as third:
        last, answer = _subscribed(third, "last")
        yield "the last push", third.push(last, answer, _metrics(), is_last=True)
    time.sleep(0.5)
    with Client(address, "reconnects") as fourth:
        yield "a push of the client that came back", fourth.push(last, answer, _metrics())


#: Settings of a subscription, whose error is compared; then what the broker describes.
_SETTINGS: dict[str, dict[str, str | None]] = {
    "interval 100": {"interval_ms": "100"},
    "interval 99": {"interval_ms": "99"},
    "interval 3600000": {"interval_ms": "3600000"},
    "interval 3600001": {"interval_ms": "3600001"},
    "interval 0": {"interval_ms": "0"},
    "interval -1": {"interval_ms": "-1"},
    "interval text": {"interval_ms": "soon"},
    "interval fraction": {"interval_ms": "1000.5"},
    "interval empty": {"interval_ms": ""},
    "metrics empty": {"metrics": ""},
    "metrics all": {"metrics": "*"},
    "metrics all and others": {"metrics": "*,org.apache.kafka."},
    "metrics any text": {"metrics": "a b,ü"},
    "match empty": {"match": ""},
    "match selector": {"match": "client_id=a"},
    "match two selectors": {"match": "client_id=a,client_software_name=b"},
    "match unknown selector": {"match": "planet=earth"},
    "match without expression": {"match": "client_id"},
    "match empty expression": {"match": "client_id="},
    "match bad expression": {"match": "client_id=("},
    "unknown setting": {"planet": "earth"},
    "good and bad setting": {"metrics": "*", "interval_ms": "1"},
    "remove what is not there": {"match": None},
}


def settings(address: str) -> Steps:
    with Client(address, "settings") as client:
        for name, values in _SETTINGS.items():
            subscription = f"settings {name}"
            yield name, client.alter_subscription(subscription, **values)
            _unsubscribe_quietly(client, subscription)
        yield "no name", client.alter_subscription("", interval_ms="1000")
        yield "described", client.subscription("settings described")


REQUEST_SEQUENCES = {
    "telemetry without a subscription": without_subscription,
    "telemetry with reserved ids": reserved_ids,
    "telemetry pushes": pushes,
    "telemetry pushes nothing": empty_pushes,
    "telemetry of unknown instances": unknown_instances,
    "telemetry in compression types": compression_types,
    "telemetry of sizes": sizes,
    "telemetry with changed subscriptions": changed_subscriptions,
    "telemetry with joined subscriptions": joined_subscriptions,
    "telemetry of matching clients": matches,
    "telemetry at short intervals": short_intervals,
    "telemetry of clients that reconnect": reconnections,
    "telemetry settings": settings,
}
