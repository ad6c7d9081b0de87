"""The blocking producer: many threads, deliveries that wait, callbacks, and errors that are its own."""

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from producer_harness import read, read_values

from headrace import Broker
from headrace.client.errors import (
    BrokerUnreachable,
    BufferExhausted,
    ClientClosed,
    KafkaTimeout,
    RecordTooLarge,
    UnknownTopic,
)
from headrace.client.producer.sync_producer import Producer


@pytest.fixture
def broker():
    with Broker(config={"num.partitions": 3}) as broker:
        yield broker


def producer_at(broker, **options):
    return Producer(bootstrap_servers=broker.bootstrap_servers, **({"linger_ms": 0} | options))


def values_of(broker, partition=0):
    return asyncio.run(read_values(broker.bootstrap_servers, partition=partition))


def test_a_delivery_waits_for_its_record(broker):
    with producer_at(broker) as producer:
        delivery = producer.send("t", b"v", key=b"k", partition=1, timestamp_ms=5, headers=[("a", b"1")])
        assert delivery.result(10) == ("t", 1, 0, 5)
        assert delivery.done()
        assert delivery.exception() is None
        assert "t-1, delivered" in repr(delivery)
        assert producer.send_and_wait("t", b"w", partition=1).offset == 1
    record, _ = asyncio.run(read(broker.bootstrap_servers, partition=1))
    assert (record.key, record.value, record.timestamp_ms, record.headers) == (b"k", b"v", 5, (("a", b"1"),))


def test_on_delivery_is_told(broker):
    told = []
    with producer_at(broker) as producer:
        for number in range(100):
            producer.send(
                "t", b"v", partition=0, on_delivery=lambda *outcome, number=number: told.append((number, *outcome))
            )
        producer.flush()
        assert [number for number, *_ in told] == list(range(100))
        assert [metadata.offset for _, metadata, _ in told] == list(range(100))
        assert {error for *_, error in told} == {None}


def test_a_callback_may_send(broker):
    seconds = []
    with producer_at(broker) as producer:
        producer.send(
            "t", b"1", partition=0, on_delivery=lambda *_: seconds.append(producer.send("t", b"2", partition=0))
        )
        producer.flush()
        assert seconds[0].result(10).offset == 1


def test_many_threads_share_a_producer(broker):
    def send(thread):
        return [producer.send("t", b"%d %d" % (thread, number)) for number in range(2000)]

    with producer_at(broker, linger_ms=5) as producer, ThreadPoolExecutor(4) as threads:
        deliveries = [delivery for sent in threads.map(send, range(4)) for delivery in sent]
        places = [delivery.result(30)[:3] for delivery in deliveries]
    assert len(set(places)) == 8000
    expected = dict(
        zip(places, (b"%d %d" % (thread, number) for thread in range(4) for number in range(2000)), strict=True)
    )
    for partition in range(3):
        values = values_of(broker, partition)
        assert values == [expected["t", partition, offset] for offset in range(len(values))]
        for thread in range(4):
            numbers = [int(value.split()[1]) for value in values if value.startswith(b"%d " % thread)]
            assert numbers == sorted(numbers)


def test_a_small_buffer_slows_down_and_loses_nothing(broker):
    with producer_at(broker, buffer_memory=40_000, batch_size=4000) as producer:
        for number in range(5000):
            producer.send("t", b"%d" % number * 10, partition=0)
        producer.flush()
        assert producer._record_buffer.pool.available_bytes == 40_000
    assert values_of(broker) == [b"%d" % number * 10 for number in range(5000)]


def test_a_batch_size_above_the_buffer_is_the_buffer(broker):
    with producer_at(broker, buffer_memory=10_000, batch_size=1_000_000) as producer:
        for number in range(1000):
            producer.send("t", b"%d" % number * 10, partition=0)
    assert values_of(broker) == [b"%d" % number * 10 for number in range(1000)]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_tiny_record_is_not_too_large_whatever_the_batch_size(broker, codec):
    """Of several partitions, each of whose batches would take the whole buffer; and by an Arrow table."""
    pyarrow = pytest.importorskip("pyarrow")
    options = {"buffer_memory": 1_000, "batch_size": 2**31 - 1, "compression_type": codec}
    with producer_at(broker, **options) as producer:
        sent = [producer.send("t", b"%d" % number, partition=number % 3) for number in range(30)]
        sent[-1].result(10)
        producer.send_arrow("t", pyarrow.table({"value": [b"row"] * 30}), partition=0)
    counts = [len(values_of(broker, partition)) for partition in range(3)]
    assert counts == [40, 10, 10]


def test_flush_and_result_give_up_after_their_time(tmp_path):
    with Broker(data=tmp_path) as broker:
        producer = producer_at(broker)
        producer.send_and_wait("t", b"v")
    delivery = producer.send("t", b"v")
    with pytest.raises(KafkaTimeout, match="the producer still tries to deliver it"):
        delivery.result(0.05)
    with pytest.raises(KafkaTimeout, match="the producer still tries to deliver it"):
        delivery.exception(0.05)
    with pytest.raises(KafkaTimeout):
        producer.flush(0.05)
    producer.close(0)
    with pytest.raises(ClientClosed):
        delivery.result(1)
    assert isinstance(delivery.exception(1), ClientClosed)


def test_a_full_buffer_is_told_after_max_block(tmp_path):
    with Broker(data=tmp_path) as broker:
        producer = producer_at(broker, buffer_memory=16_384, max_block_ms=1000)
        producer.send_and_wait("t", b"v")
    producer.send("t", b"x" * 15_000)
    with pytest.raises(BufferExhausted, match=r"max\.block\.ms"):
        producer.send("t", b"x" * 15_000)
    producer.close(0)


def test_each_refusal_has_its_own_exception(broker):
    with producer_at(broker, max_request_size=5000) as producer:
        with pytest.raises(RecordTooLarge):
            producer.send("t", b"x" * 6000)
        with pytest.raises(UnknownTopic):
            producer.send("t", b"x", partition=9)
        with pytest.raises(TypeError, match="value_serializer"):
            producer.send("t", "text")
    with pytest.raises(ClientClosed):
        producer.send("t", b"v")
    with pytest.raises(ClientClosed):
        producer.flush()
    producer.close()


def test_no_broker_is_told_when_the_producer_is_made():
    with Broker() as broker:
        address = broker.bootstrap_servers
    with pytest.raises(BrokerUnreachable, match=address):
        Producer(bootstrap_servers=address, max_block_ms=100)


def test_an_option_that_does_not_exist_names_the_nearest():
    with pytest.raises(TypeError, match="linger"):
        Producer(bootstrap_servers="h:1", lingr_ms=5)


def test_a_broker_that_is_restarted_under_a_running_producer_loses_and_doubles_nothing(tmp_path):
    with Broker(data=tmp_path) as broker:
        address = broker.bootstrap_servers
        producer = Producer(bootstrap_servers=address, linger_ms=1, retry_backoff_ms=10, reconnect_backoff_ms=10)
        begun = threading.Event()
        deliveries = []

        def send():
            for number in range(6000):
                deliveries.append(producer.send("t", b"%d" % number))
                if number == 2000:
                    begun.set()

        thread = threading.Thread(target=send)
        thread.start()
        assert begun.wait(30)
    with Broker(data=tmp_path, listen=address):
        thread.join()
        producer.flush()
        assert [delivery.result(30).offset for delivery in deliveries] == list(range(6000))
        assert asyncio.run(read_values(address)) == [b"%d" % number for number in range(6000)]
        producer.close()


class _Interrupted(Exception):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interruption_at_any_moment_leaves_the_producer_in_order(broker):
    def interrupt(*_):
        raise _Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    deliveries = []
    try:
        with producer_at(broker, linger_ms=5) as producer:
            for turn in range(40):
                fields = {"key": b"k" if turn % 2 else None, "partition": 0 if turn % 3 else None}
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.001 + turn * 0.000025)
                    for _ in range(20_000):  # it may hit where Python ignores exceptions, so not forever
                        deliveries.append(producer.send("t", b"v", **fields))  # noqa: PERF401
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except _Interrupted:
                    pass
            producer.send("t", b"last").result(30)
            assert [delivery for delivery in deliveries if delivery.exception(30)] == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    arrived = sum(len(values_of(broker, partition)) for partition in range(3))
    assert len(deliveries) <= arrived <= len(deliveries) + 41


def test_transactions(broker):
    with producer_at(broker, transactional_id="x") as producer:
        producer.init_transactions()
        for is_committed in (True, False, True):
            producer.begin_transaction()
            producer.send("t", b"%d" % is_committed, partition=0)
            if is_committed:
                producer.send_offsets_to_transaction({("t", 0): 1}, "g")
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
    assert values_of(broker) == [b"1", b"0", b"1"]
    assert asyncio.run(read_values(broker.bootstrap_servers, is_committed=True)) == [b"1", b"1"]
