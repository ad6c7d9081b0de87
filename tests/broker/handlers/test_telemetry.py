"""GetTelemetrySubscriptions and PushTelemetry, by the protocol. ``telemetry/`` has the tests with a manual clock.

Apache Kafka answers them in the same way, if it has a receiver of client metrics.
"""

import zlib
from uuid import UUID, uuid4

import pytest
from broker_harness import OTHER_KAFKA, unique
from telemetry_harness import CLIENT_METRICS, SET, TelemetryClient, counter, otlp, remove_subscriptions

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.compression import compress
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Codec
from headrace.testing.ports import free_port
from headrace.testing.raw_client import RawClient

#: The interval is never longer than the default.
LONG_MS = 300_000
METRICS = otlp(counter("org.apache.kafka.producer.record.send.total", 3, topic="orders"))


@pytest.fixture(autouse=True)
def no_subscriptions(address):
    remove_subscriptions(address)
    yield
    remove_subscriptions(address)


@pytest.fixture
def teller(address):
    with TelemetryClient(address) as client:
        yield client


def subscribed(client, metrics="*", interval_ms=LONG_MS):
    """Subscribes to the client's metrics, and returns the broker's answer to the client."""
    client.subscribe(metrics, interval_ms)
    answer = client.get()
    while OTHER_KAFKA and not answer.requested_metrics:
        answer = client.get()  # a new client each time, until the broker has the subscription
    assert answer.error_code == ErrorCode.none
    return answer


def advertised(client):
    keys = {key.api_key: key for key in client.ask(Api.API_VERSIONS, 0).api_keys}
    return [keys[api] for api in (Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY) if api in keys]


def test_the_apis_are_advertised_with_a_subscription(teller):
    subscribed(teller)
    assert [(key.min_version, key.max_version) for key in advertised(teller)] == [(0, 0), (0, 0)]


def test_the_apis_are_advertised_if_somebody_can_read_the_metrics():
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        assert advertised(client) == []
    config = {"headrace.metrics.listener": f"127.0.0.1:{free_port()}"}
    with Broker(config=config) as broker, RawClient(broker.bootstrap_servers) as client:
        assert len(advertised(client)) == 2


def test_a_client_without_a_subscription_gets_an_id_and_pushes_nothing(teller):
    answer = teller.get()
    assert answer.error_code == ErrorCode.none
    assert isinstance(answer.client_instance_id, UUID)
    assert answer.client_instance_id.int > 1
    assert answer.requested_metrics == ()
    assert answer.push_interval.total_seconds() == 300
    assert answer.telemetry_max_bytes == 1_048_576
    assert answer.delta_temporality is True
    assert answer.accepted_compression_types == (Codec.zstd, Codec.lz4, Codec.gzip, Codec.snappy)


def test_the_metrics_and_the_interval_of_a_subscription(teller):
    answer = subscribed(teller, "org.apache.kafka.producer.,org.apache.kafka.consumer.", 1_234)
    assert set(answer.requested_metrics) == {"org.apache.kafka.producer.", "org.apache.kafka.consumer."}
    assert answer.push_interval.total_seconds() == 1.234


def test_a_client_keeps_the_id_that_it_brings(teller):
    own = uuid4()
    assert teller.get(own).client_instance_id == own


@pytest.mark.parametrize("codec", Codec)
def test_a_push_is_accepted_in_every_codec(teller, codec):
    assert teller.push(subscribed(teller), compress(codec, METRICS), codec=codec) == ErrorCode.none


def test_an_empty_push_is_accepted(teller):
    assert teller.push(subscribed(teller)) == ErrorCode.none


def test_requests_before_the_interval_is_over_are_throttled(teller):
    answer = subscribed(teller)
    again = teller.get(answer.client_instance_id)
    assert again.error_code == ErrorCode.throttling_quota_exceeded
    assert (again.client_instance_id, again.subscription_id, again.requested_metrics) == (None, 0, ())
    assert teller.push(answer, METRICS) == ErrorCode.none  # the first push may come at any time
    assert teller.push(answer, METRICS) == ErrorCode.throttling_quota_exceeded


def test_the_last_push_may_come_at_any_time_and_no_push_after_it(teller):
    answer = subscribed(teller)
    assert teller.push(answer, METRICS) == ErrorCode.none
    assert teller.push(answer, METRICS, terminating=True) == ErrorCode.none
    assert teller.push(answer, METRICS, terminating=True) == ErrorCode.invalid_request


def test_a_wrong_subscription_id_makes_the_client_ask_again_at_once(teller):
    answer = subscribed(teller)
    wrong = answer.subscription_id ^ 1
    assert teller.push(answer, METRICS, subscription_id=wrong) == ErrorCode.unknown_subscription_id
    again = teller.get(answer.client_instance_id)
    assert (again.error_code, again.subscription_id) == (ErrorCode.none, answer.subscription_id)


def test_an_unknown_compression_type_makes_the_client_ask_again_at_once(teller):
    answer = subscribed(teller)
    assert teller.push(answer, METRICS, codec=5) == ErrorCode.unsupported_compression_type
    assert teller.get(answer.client_instance_id).error_code == ErrorCode.none


def test_a_push_that_is_too_large(teller):
    answer = subscribed(teller)
    assert teller.push(answer, bytes(answer.telemetry_max_bytes + 1)) == ErrorCode.telemetry_too_large


@pytest.mark.parametrize("reserved", [UUID(int=0), UUID(int=1)])
def test_a_push_without_an_id(teller, reserved):
    answer = subscribed(teller)
    assert teller.push(answer, METRICS, instance_id=reserved) == ErrorCode.invalid_request


def test_bytes_that_are_not_compressed_as_the_client_says(teller):
    assert teller.push(subscribed(teller), b"garbage", codec=Codec.gzip) == ErrorCode.invalid_record


@pytest.mark.parametrize("garbage", [b"\x0a\xff", b"\x0b", b"garbage", b"\x0a\x04\x12\x02\x12\x7f", b"\xff" * 11])
def test_bytes_that_are_not_metrics(ours, teller, garbage):
    assert teller.push(subscribed(teller), garbage) == ErrorCode.invalid_record


def test_a_decompression_bomb_is_refused(ours, teller):
    bomb = zlib.compress(bytes(200 * 1024 * 1024), 9, wbits=31)
    assert len(bomb) < 1_048_576
    assert teller.push(subscribed(teller), bomb, codec=Codec.gzip) == ErrorCode.telemetry_too_large


def test_a_changed_subscription_is_in_force_at_once(ours, teller):
    answer = subscribed(teller, "org.apache.kafka.producer.")
    teller.alter(CLIENT_METRICS, unique(), ("metrics", SET, "other."), ("match", SET, f"client_id={teller.name}"))
    assert teller.push(answer, METRICS) == ErrorCode.unknown_subscription_id
    again = teller.get(answer.client_instance_id)
    assert again.error_code == ErrorCode.none
    assert set(again.requested_metrics) == {"org.apache.kafka.producer.", "other."}
    assert teller.push(again, METRICS) == ErrorCode.none


@pytest.mark.parametrize(
    ("selector", "expression", "matches"),
    [
        ("client_software_name", "r.w", True),
        ("client_software_name", "ra", False),
        ("client_software_version", r"1\..*", True),
        ("client_source_address", r"127\.0\.0\.1", True),
        ("client_source_port", "[0-9]+", True),
        ("client_source_port", "0", False),
        ("client_instance_id", ".{22}", True),
        ("client_id", "other", False),
    ],
)
def test_the_clients_that_a_subscription_selects(ours, teller, selector, expression, matches):
    name, prefix = unique(), unique("prefix")
    match = f"client_id={teller.name},{selector}={expression}" if selector != "client_id" else f"client_id={expression}"
    assert teller.alter(CLIENT_METRICS, name, ("metrics", SET, prefix), ("match", SET, match)).error_code == 0
    assert (prefix in teller.get().requested_metrics) is matches
