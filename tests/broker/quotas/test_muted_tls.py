"""Muted connections over TLS and after a login, on a broker whose clock the tests move."""

import pytest
from broker_harness import NOW_MS, Client, batch
from quota_harness import CLIENT, Manual, connections, throttle_ms
from sasl_harness import PLAIN_JAAS

from headrace import Broker
from headrace.broker.quotas.entities import DEFAULT, Entity
from headrace.protocol.api import Api
from headrace.security.sasl.plain import PlainClient
from headrace.testing import ManualClock
from tls_harness import client_context, tls_config


class TlsClient(Client):
    """A client with the words of the harness, over TLS."""

    def __init__(self, address, **options):
        context = client_context()
        super().__init__(address, **options)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


class Secured(Manual):
    def client(self, client_id="c"):
        return TlsClient(self.broker.bootstrap_servers, client_id=client_id)


@pytest.fixture
def secured():
    clock = ManualClock(NOW_MS)
    with Broker(clock=clock, config=tls_config()) as broker:
        yield Secured(broker, clock)


def produce(client, topic, size_bytes):
    data = {"name": topic, "partition_data": [{"index": 0, "records": batch(value=b"v" * size_bytes)}]}
    return client.ask(Api.PRODUCE, 9, acks=-1, timeout=10_000, topic_data=[data])


#: A small request is received on the loop's thread, a large one on a network thread.
@pytest.mark.parametrize("size_bytes", [1_000, 300_000])
def test_a_connection_with_tls_is_muted(secured, size_bytes):
    with secured.client() as client, secured.client("free") as free:
        topic = free.create_topic()
        for _ in range(5):  # the loop's thread watches a connection that sends small requests
            client.metadata([])
        secured.set_quota(producer_byte_rate=size_bytes // 20)
        answer = produce(client, topic, size_bytes)
        assert 10_000 < throttle_ms(answer) < 13_000
        assert secured.muted == ["Produce"]
        client.send(Api.API_VERSIONS, 0)
        secured.wait(throttle_ms(answer) - 1)
        assert throttle_ms(produce(free, topic, size_bytes)) == 0
        assert secured.muted == ["Produce"]
        secured.wait(1)
        assert client.receive().error_code == 0
        assert secured.muted == []


def test_requests_that_were_sent_together_wait_and_are_all_answered(secured):
    with secured.client() as client:
        topic = client.create_topic()
        secured.set_quota(producer_byte_rate=1_000)
        data = {"name": topic, "partition_data": [{"index": 0, "records": batch(value=b"v" * 5_000)}]}
        for _ in range(5):
            client.send(Api.PRODUCE, 9, acks=-1, timeout=10_000, topic_data=[data])
        answers = []
        for _ in range(5):
            answers.append(throttle_ms(client.receive()))
            secured.wait(answers[-1])
        assert answers[0] == 0
        assert all(answer > 0 for answer in answers[2:])


def test_a_broker_with_a_muted_tls_connection_stops():
    clock = ManualClock(NOW_MS)
    with Broker(clock=clock, config=tls_config()) as broker:
        secured = Secured(broker, clock)
        client = secured.client()
        topic = client.create_topic()
        secured.set_quota(producer_byte_rate=1)
        produce(client, topic, 300_000)
        client.send(Api.API_VERSIONS, 0)
        assert secured.muted == ["Produce"]
    assert client.is_closed_by_peer()
    client.close()


def test_the_time_of_network_threads_counts(secured):
    with secured.client() as client:
        topic = client.create_topic()
        secured.set_quota(request_percentage=1e9)
        produce(client, topic, 900_000)
        client.metadata([])
        (connection,) = connections(secured.broker)
        assert connection.limits.request.rate.total > 0


def test_the_user_of_a_login_counts():
    config = tls_config(
        listeners="SASL_SSL://127.0.0.1:0",
        security_inter_broker_protocol="SASL_SSL",
        sasl_enabled_mechanisms="PLAIN",
    )
    config["listener.name.sasl_ssl.plain.sasl.jaas.config"] = PLAIN_JAAS
    clock = ManualClock(NOW_MS)
    with Broker(clock=clock, config=config) as broker:
        secured = Secured(broker, clock)
        secured.set_quota(Entity(user="alice"), producer_byte_rate=1_000)
        secured.set_quota(CLIENT, producer_byte_rate=1_000_000)
        secured.set_quota(Entity(user=DEFAULT), request_percentage=1e-9)
        with secured.client() as alice, secured.client() as bob:
            log_in(alice, "alice")
            log_in(bob, "bob")  # logins are not throttled
            with secured.client("free") as free:
                log_in(free, "bob")
                secured.set_quota(Entity(user=DEFAULT))
                topic = free.create_topic()
            assert throttle_ms(produce(alice, topic, 20_000)) > 10_000
            assert throttle_ms(produce(bob, topic, 20_000)) == 0
            assert secured.muted == ["Produce"]


def log_in(client, user):
    mechanism = PlainClient(user, f"{user}-secret")
    assert client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
    answer = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=mechanism.first())
    assert answer.error_code == 0
