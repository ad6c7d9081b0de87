"""A sender with a cluster of one broker that answers what the test says, and a clock that the test moves."""

import asyncio
from types import SimpleNamespace

from headrace.client.config import ProducerConfig
from headrace.client.errors import BrokerUnreachable
from headrace.client.metadata import Metadata
from headrace.client.producer.delivery import AsyncDelivery
from headrace.client.producer.record_buffer import RecordBuffer
from headrace.client.producer.sender import Sender
from headrace.client.types import Node, PartitionInfo, TopicInfo
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode
from headrace.protocol.record_body import decode_records
from headrace.protocol.records import read_header
from headrace.testing import ManualClock

NODE = 7


class Request:
    """A Produce request that waits for its answer."""

    def __init__(self, fields, future):
        self.fields = fields
        self.future = future
        self.batches = {
            (topic["name"], one["index"]): bytes(one["records"])
            for topic in fields["topic_data"]
            for one in topic["partition_data"]
        }

    @property
    def header(self):
        (batch,) = self.batches.values()
        return read_header(batch)

    @property
    def values(self):
        return [record.value for batch in self.batches.values() for record in decode_records(batch)]

    def answer(self, code=ErrorCode.none, base_offset=0, message=None, log_append_time=None):
        partitions = [
            (
                topic,
                SimpleNamespace(
                    index=index, error_code=code, base_offset=base_offset, log_append_time=log_append_time,
                    error_message=message, record_errors=(),
                ),
            )
            for topic, index in self.batches
        ]  # fmt: skip
        topics = {topic for topic, _ in partitions}
        self.future.set_result(
            SimpleNamespace(
                responses=[
                    SimpleNamespace(name=name, partition_responses=[one for topic, one in partitions if topic == name])
                    for name in topics
                ]
            )
        )

    def lose(self):
        self.future.set_exception(BrokerUnreachable("the connection broke"))


class FakeConnection:
    def __init__(self):
        self.is_closed = False
        self.is_throttled = False
        self.throttle_left_ms = 0.0
        self.metrics = None
        self.features = {}
        self.requests = []
        self.has_request = asyncio.Event()

    def version_of(self, api, most=None):
        return most

    def send(self, api, version, fields, *, expects_answer=True):
        assert api is Api.PRODUCE
        assert version == 12
        future = asyncio.get_running_loop().create_future()
        if not expects_answer:
            future.set_result(None)
        self.requests.append(Request(fields, future))
        self.has_request.set()
        return future


class FakeCluster:
    def __init__(self, partitions):
        self.clock = ManualClock()
        self.metadata = Metadata()
        infos = tuple(PartitionInfo("t", index, NODE, 0, (NODE,), (NODE,)) for index in range(partitions))
        self.metadata.topics = {"t": TopicInfo("t", None, infos)}
        self.metadata.nodes = {NODE: Node(NODE, "h", 1)}
        self.open = FakeConnection()
        self.connects = 0
        self.refreshes = 0
        self.is_invalid = False
        self.producer_ids = iter([(5, 0), (6, 0)])

    def leader(self, topic, partition):
        return self.metadata.leader(topic, partition)

    def is_stale(self):
        return self.is_invalid

    def invalidate(self):
        self.is_invalid = True

    async def refresh(self, topics=None, *, create=True, timeout_ms=None):
        self.refreshes += 1
        self.is_invalid = False

    async def connection(self, node_id, *, purpose):
        assert node_id == NODE
        self.connects += 1
        return self.open

    async def ask_any(self, api, **fields):
        assert api is Api.INIT_PRODUCER_ID
        found = next(self.producer_ids)
        if isinstance(found, ErrorCode):
            return SimpleNamespace(error_code=found)
        return SimpleNamespace(error_code=ErrorCode.none, producer_id=found[0], producer_epoch=found[1])


class SenderHarness:
    def __init__(self, *, partitions=1, **options):
        defaults = {"linger_ms": 0, "retry_backoff_ms": 100, "retry_backoff_max_ms": 100}
        self.config = ProducerConfig.load(bootstrap_servers="h:1", **(defaults | options))
        self.cluster = FakeCluster(partitions)
        self.clock = self.cluster.clock
        self.record_buffer = RecordBuffer(self.config, self.cluster.metadata, self.clock, AsyncDelivery)
        self.sender = Sender(self.config, self.cluster, self.record_buffer.accumulator, self.record_buffer.partitioner)

    async def __aenter__(self):
        await self.settle()
        return self

    async def __aexit__(self, *_):
        await self.sender.stop()

    @property
    def requests(self):
        return self.cluster.open.requests

    @property
    def last(self):
        return self.requests[-1]

    def buffer(self, value=b"v", *, partition=None, on_delivery=None):
        return self.record_buffer.buffer("t", value, None, partition, None, (), on_delivery)

    async def settle(self):
        """Lets the sender do all that it can do now."""
        for _ in range(10):
            self.sender.step()
            await asyncio.sleep(0)

    async def send(self, value=b"v", **options):
        """A record in a batch of its own, which is with the broker then, if that takes any."""
        delivery = self.buffer(value, **options)
        self.record_buffer.refuse(None)  # closes the batch
        await self.settle()
        return delivery

    async def pass_time(self, by_ms):
        self.clock.advance(by_ms)
        await self.settle()
