"""The metrics of quotas as a scraper sees them, on a broker whose clock the test moves."""

import urllib.request
from functools import partial

import pytest
from broker_harness import batch, on_loop, unique
from prometheus_client.parser import text_string_to_metric_families
from quota_harness import manual_broker, set_quota

from headrace.broker.metrics.quota_values import MAX_ENTITIES
from headrace.broker.quotas.entities import DEFAULT, Entity
from headrace.protocol.api import Api


@pytest.fixture
def manual():
    with manual_broker(headrace_metrics_listener="127.0.0.1:0") as manual:
        yield manual


def scrape(manual):
    host, port = manual.broker.core.metrics_exporter.endpoint
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def quota(found, name, **labels):
    return found.get((f"kafka_server_{name}", frozenset(labels.items())))


def test_rates_and_throttle_times_by_entity(manual):
    manual.set_quota(producer_byte_rate=10_000, consumer_byte_rate=10_000, request_percentage=100.0)
    manual.set_quota(Entity(user="ANONYMOUS"), controller_mutation_rate=1.0)
    with manual.client() as client:
        topic = client.create_topic(partitions=2)
        client.produce(topic, batch(value=b"v" * 50_000))
        client.read(topic)
        found = partial(quota, scrape(manual))
        produced = found("quota_byte_rate", resource="Produce", user="", clientId="c")
        assert 5_000 < produced < 5_100, "50,000 bytes in ten seconds"
        assert 5_000 < found("quota_byte_rate", resource="Fetch", user="", clientId="c") < 5_100
        assert 0 < found("quota_request_time", resource="Request", user="", clientId="c") < 100
        assert found("quota_mutation_rate", resource="ControllerMutation", user="ANONYMOUS", clientId="") == 0.2
        assert found("quota_tokens", resource="ControllerMutation", user="ANONYMOUS", clientId="") == 9
        assert found("quota_throttle_time", resource="Produce", user="", clientId="c") is None
        assert found("quota_queue_size", resource="Produce") == 0
        client.produce(topic, batch(value=b"v" * 70_000))
        found = partial(quota, scrape(manual))
        assert 2_000 < found("quota_throttle_time", resource="Produce", user="", clientId="c") < 2_100
        assert found("quota_queue_size", resource="Produce") == 1
        manual.wait(3_000)
        assert quota(scrape(manual), "quota_queue_size", resource="Produce") == 0


def test_users_are_named_as_in_kafka(manual):
    manual.set_quota(Entity(user=DEFAULT, client_id=DEFAULT), producer_byte_rate=10_000)
    with manual.client("a client/with signs") as client:
        client.produce(client.create_topic(), batch())
        labels = {"resource": "Produce", "user": "ANONYMOUS", "clientId": "a client/with signs"}
        assert quota(scrape(manual), "quota_byte_rate", **labels) > 0


def test_the_number_of_series_is_bounded(manual):
    manual.set_quota(Entity(client_id=DEFAULT), producer_byte_rate=10_000)
    with manual.client("a") as client:
        client.produce(client.create_topic(), batch())
        throttling, principal = manual.broker.core.enforcement.throttling, next(iter(manual.broker.core.connections))

        def look_up_many():
            for number in range(2 * MAX_ENTITIES):
                throttling._look_up(principal.principal, f"invented-{number}")

        on_loop(manual.broker, look_up_many)
        names = [name for name, _ in scrape(manual) if name == "kafka_server_quota_byte_rate"]
        assert len(names) == MAX_ENTITIES


def test_new_connections(manual):
    set_quota(manual.broker, Entity(ip=DEFAULT), connection_creation_rate=1)
    clients = [manual.client() for _ in range(10)]
    assert all(client.ask(Api.API_VERSIONS, 0).error_code == 0 for client in clients)
    refused = manual.client()
    assert clients[0].metadata([unique()]).topics
    found = partial(quota, scrape(manual))
    assert found("socketservermetrics_connection_accept_rate", listener="PLAINTEXT") == 1.0
    assert found("socketservermetrics_broker_connection_accept_rate") == 1.0
    assert found("socketservermetrics_connection_accept_throttle_time", listener="PLAINTEXT") == 0
    assert found("socketservermetrics_ip_connection_accept_throttle_time", listener="PLAINTEXT") == 1_000
    for client in (*clients, refused):
        client.close()
