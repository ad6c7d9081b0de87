"""Errors of the clients: each has an exception of its own, in blocking and asyncio clients, and says what to do.

Headrace has no rules of who may do what yet, so where one is wanted, a handler of the broker is replaced by one that
refuses.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import Admin, AsyncConsumer, AsyncProducer, Broker, Consumer, Producer, TopicPartition
from headrace.broker.network.dispatch import Dispatcher
from headrace.client.errors import (
    BrokerUnreachable,
    BufferExhausted,
    ClientClosed,
    HeadraceError,
    NoCommittedOffset,
    NotAuthorized,
    OffsetOutOfRange,
    ProducerFenced,
    RecordTooLarge,
    UnknownTopic,
)
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode

T0 = TopicPartition("t", 0)
Refuse = Callable[[Api, Callable[[Any], dict[str, Any]]], None]


@pytest.fixture
def servers() -> Iterator[str]:
    with Broker(config={"auto.create.topics.enable": False, "message.max.bytes": 2_000}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        yield broker.bootstrap_servers


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Replaces what the broker answers to an API by what is made of the request."""

    def refuse(api: Api, answer: Callable[[Any], dict[str, Any]]) -> None:
        real = Dispatcher._load

        async def handle(request: Any) -> dict[str, Any]:
            return answer(request.body)

        def load(dispatcher: Dispatcher, asked: Api) -> Any:
            return handle if asked is api else real(dispatcher, asked)

        monkeypatch.setattr(Dispatcher, "_load", load)

    return refuse


def produce_refusal(code: ErrorCode) -> Callable[[Any], dict[str, Any]]:
    def answer(body: Any) -> dict[str, Any]:
        return {
            "responses": [
                {
                    "name": getattr(topic, "name", None),
                    "topic_id": getattr(topic, "topic_id", None),
                    "partition_responses": [
                        {"index": each.index, "error_code": code, "base_offset": -1, "record_errors": ()}
                        for each in topic.partition_data
                    ],
                }
                for topic in body.topic_data
            ]
        }

    return answer


# -- producers


def test_a_record_that_is_too_large_for_the_producer_or_for_the_topic(servers: str) -> None:
    with Producer(bootstrap_servers=servers, max_request_size=10_000) as producer:
        with pytest.raises(RecordTooLarge, match=r"max\.request\.size"):
            producer.send("t", b"x" * 20_000)
        with pytest.raises(RecordTooLarge):
            producer.send_and_wait("t", b"x" * 5_000)
        assert producer.send_and_wait("t", b"x").offset == 0


async def test_a_record_that_is_too_large_async(servers: str) -> None:
    async with AsyncProducer(bootstrap_servers=servers, max_request_size=10_000) as producer:
        with pytest.raises(RecordTooLarge, match=r"max\.request\.size"):
            await producer.send("t", b"x" * 20_000)
        with pytest.raises(RecordTooLarge):
            await producer.send_and_wait("t", b"x" * 5_000)


def test_an_unknown_topic_and_an_unknown_partition(servers: str) -> None:
    with Producer(bootstrap_servers=servers, max_block_ms=300) as producer:
        with pytest.raises(UnknownTopic, match="nope"):
            producer.send("nope", b"x")
        with pytest.raises(UnknownTopic, match="7"):
            producer.send("t", b"x", partition=7)


async def test_an_unknown_topic_async(servers: str) -> None:
    async with AsyncProducer(bootstrap_servers=servers, max_block_ms=300) as producer:
        with pytest.raises(UnknownTopic, match="nope"):
            await producer.send("nope", b"x")


async def test_a_full_buffer(servers: str, refuse: Refuse) -> None:
    refuse(Api.PRODUCE, produce_refusal(ErrorCode.not_leader_or_follower))  # so all of it is kept, and tried again
    options = {"bootstrap_servers": servers, "buffer_memory": 4_096, "batch_size": 1_024, "max_block_ms": 50}
    producer = Producer(**options)
    deliveries = [producer.send("t", b"x" * 1_000) for _ in range(3)]
    with pytest.raises(BufferExhausted, match=r"buffer\.memory"):
        producer.send("t", b"x" * 2_000)
    producer.close(timeout=0)
    for delivery in deliveries:
        with pytest.raises(ClientClosed):
            delivery.result()
    async_producer = AsyncProducer(**options)
    await async_producer.start()
    for _ in range(3):
        await async_producer.send("t", b"x" * 1_000)
    with pytest.raises(BufferExhausted, match=r"buffer\.memory"):
        await async_producer.send("t", b"x" * 2_000)
    await async_producer.close(timeout_ms=0)


def test_a_record_that_may_not_be_written(servers: str, refuse: Refuse) -> None:
    refuse(Api.PRODUCE, produce_refusal(ErrorCode.topic_authorization_failed))
    with Producer(bootstrap_servers=servers) as producer, pytest.raises(NotAuthorized):
        producer.send_and_wait("t", b"x")


def test_an_id_that_may_not_be_used(servers: str, refuse: Refuse) -> None:
    code = ErrorCode.transactional_id_authorization_failed
    refuse(Api.INIT_PRODUCER_ID, lambda _: {"error_code": code, "producer_id": -1, "producer_epoch": -1})
    with Producer(bootstrap_servers=servers, transactional_id="id") as producer, pytest.raises(NotAuthorized):
        producer.init_transactions()


def test_a_producer_that_another_one_has_replaced(servers: str) -> None:
    with (
        Producer(bootstrap_servers=servers, transactional_id="id") as old,
        Producer(bootstrap_servers=servers, transactional_id="id") as new,
    ):
        old.init_transactions()
        old.begin_transaction()
        old.send_and_wait("t", b"x")
        new.init_transactions()
        old.send("t", b"x")
        with pytest.raises(ProducerFenced):
            old.commit_transaction()
        with pytest.raises(ProducerFenced):
            old.begin_transaction()


async def test_closed_producers(servers: str) -> None:
    producer = Producer(bootstrap_servers=servers)
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send("t", b"x")
    async with AsyncProducer(bootstrap_servers=servers) as async_producer:
        pass
    with pytest.raises(ClientClosed):
        await async_producer.send("t", b"x")


# -- consumers


def test_topics_and_groups_that_may_not_be_read(servers: str, refuse: Refuse) -> None:
    with Consumer(bootstrap_servers=servers, group_id="g") as consumer:
        refuse(
            Api.FIND_COORDINATOR,
            lambda body: {
                "coordinators": [
                    {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": None}
                    for key in body.coordinator_keys
                    for code in [ErrorCode.group_authorization_failed]
                ]
            },
        )
        consumer.subscribe(["t"])
        with pytest.raises(NotAuthorized, match="g"):
            consumer.poll(5_000)


def test_offsets_that_are_not_there_without_a_reset(servers: str) -> None:
    with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        with pytest.raises(NoCommittedOffset, match="t-0"):
            consumer.poll(5_000)
        consumer.seek(T0, 100)
        with pytest.raises(OffsetOutOfRange, match="t-0"):
            consumer.poll(5_000)


async def test_what_went_wrong_before_a_seek_is_not_raised_after_it(servers: str) -> None:
    async with AsyncConsumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        with pytest.raises(NoCommittedOffset):
            await consumer.poll(5_000)
        assert consumer._fetcher.is_started
        while not consumer._fetcher.has_error:
            await consumer.beginning_offsets(T0)  # meanwhile it looks once more, with the same result
        consumer.seek(T0, 100)
        with pytest.raises(OffsetOutOfRange):
            await consumer.poll(5_000)


async def test_closed_consumers(servers: str) -> None:
    consumer = Consumer(bootstrap_servers=servers)
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.poll(0)
    async with AsyncConsumer(bootstrap_servers=servers) as async_consumer:
        pass
    with pytest.raises(ClientClosed):
        await async_consumer.poll(0)


# -- all


def test_a_broker_that_is_not_there() -> None:
    nobody = "127.0.0.1:1"
    with pytest.raises(BrokerUnreachable, match=nobody):
        Producer(bootstrap_servers=nobody, max_block_ms=200)
    with pytest.raises(BrokerUnreachable, match=nobody):
        Consumer(bootstrap_servers=nobody, default_api_timeout_ms=200).start()
    with pytest.raises(BrokerUnreachable, match=nobody):
        Admin(bootstrap_servers=nobody, default_api_timeout_ms=200).start()


def test_all_are_one_family() -> None:
    for error in (BufferExhausted, RecordTooLarge, UnknownTopic, NotAuthorized, ClientClosed, BrokerUnreachable):
        assert issubclass(error, HeadraceError)
    assert issubclass(BufferExhausted, TimeoutError)
    assert issubclass(BrokerUnreachable, ConnectionError)
