"""Clients push to a broker that asks, and are silent otherwise."""

import asyncio
import logging
import sys
from uuid import UUID

import pytest
from fake_broker import FakeBroker, running, serving_a_topic
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from headrace import AsyncAdmin, AsyncConsumer, AsyncProducer
from headrace.client.errors import KafkaTimeout, UnsupportedByBroker
from headrace.protocol.api import Api
from headrace.protocol.compression import decompress
from headrace.protocol.kio import ErrorCode
from headrace.protocol.records import Codec

ID = UUID("12345678-1234-1234-1234-123456789abc")
_ALL_CODECS = (4, 3, 1, 2)


class AskingBroker(FakeBroker):
    """A broker that wants metrics, and keeps what clients push."""

    def __init__(self, *metrics: str, codecs=(), interval_ms: int = 20, is_delta: bool = False) -> None:
        super().__init__()
        serving_a_topic(self)
        self.served |= {Api.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), Api.PUSH_TELEMETRY: (0, 0)}
        self.codes: list[ErrorCode] = []
        self.has_push = asyncio.Event()
        self.wanted = {
            "error_code": 0,
            "client_instance_id": ID,
            "subscription_id": 7,
            "accepted_compression_types": codecs,
            "push_interval": interval_ms,
            "telemetry_max_bytes": 1 << 20,
            "delta_temporality": is_delta,
            "requested_metrics": metrics,
        }
        self.answers[Api.GET_TELEMETRY_SUBSCRIPTIONS] = lambda _: self.wanted
        self.answers[Api.PUSH_TELEMETRY] = self._pushed

    def _pushed(self, request):
        self.has_push.set()
        return {"error_code": (self.codes.pop(0) if self.codes else ErrorCode.none).value}

    @property
    def subscriptions(self):
        return self.of(Api.GET_TELEMETRY_SUBSCRIPTIONS)

    @property
    def pushes(self):
        return self.of(Api.PUSH_TELEMETRY)

    async def pushed(self, count: int) -> None:
        """Waits for ``count`` pushes."""
        while len(self.pushes) < count:
            self.has_push.clear()
            await asyncio.wait_for(self.has_push.wait(), 10)


def metrics_of(push) -> dict[str, float]:
    data = MetricsData.FromString(decompress(Codec(push.compression_type), push.metrics))
    metrics = [
        metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
    ]
    return {
        metric.name.removeprefix("org.apache.kafka."): getattr(metric, metric.WhichOneof("data"))
        .data_points[0]
        .as_double
        for metric in metrics
    }


async def test_a_client_pushes_what_is_wanted_and_once_more_when_it_is_closed():
    async with running(AskingBroker("org.apache.kafka.admin.client.connection")) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.servers) as admin:
            assert await admin.client_instance_id() == ID
            await broker.pushed(2)
        assert broker.subscriptions[0].client_instance_id is None, "a new client has no id"
        assert [push.terminating for push in broker.pushes] == [False] * (len(broker.pushes) - 1) + [True]
        for push in broker.pushes:
            assert (push.client_instance_id, push.subscription_id, push.compression_type) == (ID, 7, 0)
        found = metrics_of(broker.pushes[0])
        assert found["admin.client.connection.creation.total"] == 1
        assert all(name.startswith("admin.client.connection") for name in found)
        assert len(broker.subscriptions) == 1


async def test_a_client_that_is_closed_before_its_first_push_still_pushes():
    async with running(AskingBroker("*", interval_ms=60_000)) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.servers) as admin:
            await admin.client_instance_id()
        assert [push.terminating for push in broker.pushes] == [True]


@pytest.mark.parametrize("number", _ALL_CODECS)
async def test_the_first_accepted_codec_is_used(number):
    async with running(AskingBroker("*", codecs=(99, number, 0))) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.servers):
            await broker.pushed(1)
        assert broker.pushes[0].compression_type == number
        assert "admin.client.request.total" in metrics_of(broker.pushes[0])


async def test_totals_are_differences_if_the_broker_wants_that():
    async with running(AskingBroker("org.apache.kafka.admin.client.connection.creation", is_delta=True)) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.servers):
            await broker.pushed(2)
        first, second = (metrics_of(push)["admin.client.connection.creation.total"] for push in broker.pushes[:2])
        assert (first, second) == (1, 0)


async def test_producers_and_consumers_push_too():
    async with running(AskingBroker("*")) as broker:
        async with AsyncProducer(bootstrap_servers=broker.servers, enable_idempotence=False) as producer:
            assert await producer.client_instance_id() == ID
            await broker.pushed(1)
        assert "producer.buffer.total.bytes" in metrics_of(broker.pushes[0])
        before = len(broker.pushes)
        async with AsyncConsumer(bootstrap_servers=broker.servers) as consumer:
            assert await consumer.client_instance_id() == ID
            await broker.pushed(before + 1)
        assert "consumer.connection.count" in metrics_of(broker.pushes[before])


async def test_a_changed_subscription_is_asked_for_with_the_clients_id():
    async with running(AskingBroker("*")) as broker:
        broker.codes = [ErrorCode.unknown_subscription_id]
        async with AsyncAdmin(bootstrap_servers=broker.servers):
            await broker.pushed(1)
            broker.wanted |= {"subscription_id": 8}
            await broker.pushed(2)
        assert [request.client_instance_id for request in broker.subscriptions] == [None, ID]
        assert broker.pushes[1].subscription_id == 8


async def test_a_push_that_the_broker_can_never_read_is_the_last():
    async with running(AskingBroker("*")) as broker:
        broker.codes = [ErrorCode.invalid_record]
        async with AsyncAdmin(bootstrap_servers=broker.servers) as admin:
            await broker.pushed(1)
            await admin.list_topics()
            assert admin._requests.telemetry._task is not None
            await asyncio.wait([admin._requests.telemetry._task], timeout=10)
        assert len(broker.pushes) == 1


async def test_a_client_whose_metrics_nobody_wants_pushes_nothing_and_imports_nothing():
    async with running(AskingBroker()) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.servers) as admin:
            await admin.client_instance_id()
            assert admin._requests.telemetry._encoder is None
        assert broker.pushes == []


async def test_a_broker_without_the_api_is_never_asked():
    async with running(serving_a_topic(FakeBroker())) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.servers) as admin:
            await admin.list_topics()
            assert admin._requests.telemetry._task is None
            with pytest.raises(UnsupportedByBroker, match="telemetry"):
                await admin.client_instance_id()
        assert Api.GET_TELEMETRY_SUBSCRIPTIONS not in broker.seen


async def test_a_client_with_telemetry_off_is_silent():
    async with running(AskingBroker("*")) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.servers, enable_metrics_push=False) as admin:
            with pytest.raises(ValueError, match="enable_metrics_push"):
                await admin.client_instance_id()
        assert broker.subscriptions == []


async def test_a_broker_that_does_not_answer_delays_no_close():
    async with running(AskingBroker("*")) as broker:
        broker.answers[Api.GET_TELEMETRY_SUBSCRIPTIONS] = lambda _: None
        async with AsyncAdmin(bootstrap_servers=broker.servers) as admin:
            with pytest.raises(KafkaTimeout, match="instance id"):
                await admin.client_instance_id(timeout_ms=20)


async def test_without_the_package_the_client_says_so_once_and_pushes_nothing(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "headrace.client.telemetry.otlp", None)
    monkeypatch.delattr("headrace.client.telemetry.otlp", raising=False)
    caplog.set_level(logging.DEBUG, "headrace.client.telemetry")
    async with running(AskingBroker("*")) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.servers) as admin:
            await asyncio.wait([admin._requests.telemetry._task], timeout=10)
        assert broker.pushes == []
    said = [record for record in caplog.records if "opentelemetry-proto" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.DEBUG]


async def test_a_lost_connection_is_no_error_and_the_client_uses_another():
    async with running(AskingBroker("*")) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.servers) as admin:
            await broker.pushed(1)
            telemetry = admin._requests.telemetry
            lost = telemetry._connection
            lost.abort(ConnectionResetError("gone"))
            await broker.pushed(len(broker.pushes) + 2)
            assert telemetry._connection is not lost
        assert {push.client_instance_id for push in broker.pushes} == {ID}
