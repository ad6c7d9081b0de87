"""Produce with batches of more than a mebibyte: a thread writes them, and only their partition waits."""

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from broker_harness import Client, batch, headers, on_loop

from headrace import Broker
from headrace.log.disk import Disk
from headrace.log.early_write import LARGE_BATCH_BYTES
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Codec
from headrace.testing.faulty_disk import FaultyDisk

pytestmark = pytest.mark.usefixtures("ours")

VALUE = os.urandom(LARGE_BATCH_BYTES)
LARGE = batch(2, value=VALUE)
CONFIG = {"message.max.bytes": 50_000_000, "num.partitions": 2}


class GatedDisk(Disk):
    """Holds large writes until the test opens the gate."""

    __slots__ = ("gate", "reached")

    def __init__(self):
        self.reached, self.gate = Event(), Event()

    def write(self, fd, buffers, position, size_bytes):
        if size_bytes > LARGE_BATCH_BYTES:
            self.reached.set()
            assert self.gate.wait(60)
        super().write(fd, buffers, position, size_bytes)


@pytest.fixture
def disk():
    return GatedDisk()


@pytest.fixture
def broker(tmp_path, disk):
    with Broker(data=tmp_path / "data", config=CONFIG, disk=disk) as broker:
        yield broker
        disk.gate.set()


@pytest.fixture
def clients(broker):
    made = [Client(broker.bootstrap_servers) for _ in range(3)]
    yield made
    for client in made:
        client.close()


@pytest.fixture
def others():
    """Runs the requests of other clients meanwhile."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


def log_of(broker, topic, partition=0):
    return broker.core.logs.get(topic, partition)


def stored(broker, topic, partition=0):
    """The offsets of the batches, and whether the file ends behind the last one."""
    log = log_of(broker, topic, partition)
    with open(log.active.path(), "rb") as file:
        content = file.read()
    return [header.base_offset for header in headers(content)], len(content) == log.size_bytes


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_large_batch_is_stored_as_it_came(broker, disk, clients, acks):
    disk.gate.set()
    client, *_ = clients
    topic = client.create_topic()
    assert client.produce(topic, batch()).base_offset == 0
    answer = client.produce(topic, LARGE, acks=acks)
    assert (answer.error_code, answer.base_offset) == (0, 1)
    assert client.produce(topic, batch()).base_offset == 3
    assert stored(broker, topic) == ([0, 1, 3], True)
    assert disk.reached.is_set()
    assert broker.core.metrics.by_topic[topic].produce_requests == 3


def test_only_its_partition_waits_for_a_large_batch(broker, disk, clients, others):
    large_client, small_client, bystander = clients
    topic = large_client.create_topic(partitions=2)
    large = others.submit(large_client.produce, topic, LARGE)
    assert disk.reached.wait(60)
    small = others.submit(small_client.produce, topic, batch())
    for number in range(5):
        assert bystander.produce(topic, batch(), partition=1).base_offset == number
    assert bystander.offset(topic, -1).offset == 0, "nothing counts before the batch is appended"
    assert not small.done()
    assert not large.done()
    disk.gate.set()
    assert (large.result(60).base_offset, small.result(60).base_offset) == (0, 2)
    assert stored(broker, topic) == ([0, 2], True)


def test_large_batches_of_several_clients_are_stored_one_after_the_other(broker, disk, clients, others):
    topic = clients[0].create_topic()
    waiting = [others.submit(client.produce, topic, LARGE) for client in clients]
    assert disk.reached.wait(60)
    disk.gate.set()
    assert sorted(each.result(60).base_offset for each in waiting) == [0, 2, 4]
    assert stored(broker, topic) == ([0, 2, 4], True)


def test_a_write_of_the_broker_itself_does_not_wait_for_a_large_batch_to_be_appended(broker, disk, clients, others):
    """For example the marker of a transaction. The large batch comes behind it."""
    topic = clients[0].create_topic()
    large = others.submit(clients[0].produce, topic, LARGE)
    assert disk.reached.wait(60)
    partition, is_appending = broker.core.partitions.get(topic, 0), threading.Event()
    others.submit(lambda: is_appending.wait(60) and disk.gate.set())

    def append() -> int:
        is_appending.set()  # from here on the loop is busy: the large batch cannot be appended first
        return partition.append(batch()).base_offset

    assert on_loop(broker, append) == 0
    assert large.result(60).base_offset == 1
    assert stored(broker, topic) == ([0, 1], True)


def test_a_damaged_batch_leaves_nothing_behind(broker, disk, clients):
    disk.gate.set()
    client, *_ = clients
    topic = client.create_topic()
    assert client.produce(topic, LARGE[:-1] + b"!").error_code == ErrorCode.corrupt_message
    assert not disk.reached.is_set()
    assert (
        client.produce(topic, batch(2, value=VALUE, producer_id=7, producer_epoch=0, base_sequence=0)).base_offset == 0
    )
    refused = client.produce(topic, batch(2, value=VALUE, producer_id=7, producer_epoch=0, base_sequence=9))
    assert refused.error_code == ErrorCode.out_of_order_sequence_number
    assert stored(broker, topic) == ([0], True)
    assert client.produce(topic, batch()).base_offset == 2


def test_a_topic_may_want_another_compression(broker, disk, clients):
    disk.gate.set()
    client, *_ = clients
    topic = client.create_topic(compression_type="lz4")
    assert client.produce(topic, LARGE).base_offset == 0
    assert client.produce(topic, LARGE).base_offset == 2
    assert stored(broker, topic) == ([0, 2], True)
    with open(log_of(broker, topic).active.path(), "rb") as file:
        assert {header.codec_number for header in headers(file.read())} == {Codec.lz4}


def open_when_closed(disk, address):
    """Opens the gate of the disk when the broker has begun to stop: it accepts no connections then."""
    host, port = address.split(":")
    while accepts(host, int(port)):
        Event().wait(0.01)
    disk.gate.set()


def accepts(host, port):
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


def test_the_broker_stops_while_a_large_batch_is_written(tmp_path, disk, others):
    with Broker(data=tmp_path / "data", config=CONFIG, disk=disk) as broker:
        client = Client(broker.bootstrap_servers)
        topic = client.create_topic()
        assert client.produce(topic, batch()).base_offset == 0
        large = others.submit(client.produce, topic, LARGE)
        assert disk.reached.wait(60)
        others.submit(open_when_closed, disk, broker.bootstrap_servers)
    assert large.exception(60) is not None, "the batch was not acknowledged"
    client.close()
    with Broker(data=tmp_path / "data", config=CONFIG) as broker, Client(broker.bootstrap_servers) as client:
        assert stored(broker, topic) == ([0], True)
        assert client.produce(topic, LARGE).base_offset == 1


def test_the_disk_fails_while_a_large_batch_is_written(tmp_path):
    disk = FaultyDisk()
    with Broker(data=tmp_path / "data", config=CONFIG, disk=disk) as broker, Client(broker.bootstrap_servers) as client:
        topic = client.create_topic()
        assert client.produce(topic, batch()).base_offset == 0
        disk.fail("write", f"{topic}-0", partial_bytes=1000)
        assert client.produce(topic, LARGE).error_code == ErrorCode.kafka_storage_error
        assert client.produce(topic, batch()).error_code == ErrorCode.kafka_storage_error
    with Broker(data=tmp_path / "data", config=CONFIG) as broker, Client(broker.bootstrap_servers) as client:
        assert stored(broker, topic) == ([0], True)
        assert client.produce(topic, batch()).base_offset == 1
