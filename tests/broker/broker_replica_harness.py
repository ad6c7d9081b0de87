"""Brokers as far as replication goes: logs, partitions, a ReplicaManager and the handlers, in one process.

What one asks another is encoded and decoded as on the wire. Requests of a connection are answered one at a time. The
controller is the test, which says who leads what.
"""

import asyncio
from itertools import count
from types import SimpleNamespace
from uuid import UUID

from headrace.broker.authorization.authorizer import AllowAll
from headrace.broker.cluster.controller_fence import ControllerFence
from headrace.broker.cluster.member_metrics import MemberMetrics
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.coordinators.committed import CommitWaits
from headrace.broker.current_leaders import CurrentLeaders
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.metadata_cache import MetadataCache, Node
from headrace.broker.metrics.counters import Metrics
from headrace.broker.network.handler_binding import bound_handler
from headrace.broker.network.request import Request
from headrace.broker.network.slices import Slices
from headrace.broker.purgatories import Purgatories
from headrace.broker.quotas.client_quotas import ClientQuotas
from headrace.broker.quotas.rates import Windows
from headrace.broker.quotas.throttling import Throttling
from headrace.broker.replicas.context import ReplicaContext
from headrace.broker.replicas.replicas import ReplicaManager
from headrace.broker.runtime import BrokerRuntime
from headrace.client.errors import BrokerUnreachable
from headrace.controller.decisions.broker_requests import (
    LeaderAndIsr,
    LeaderAndIsrPartition,
    StoppedPartition,
    StopReplica,
)
from headrace.controller.decisions.leader_elections import Leadership
from headrace.controller.decisions.reassignments import Assignment
from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.interface import ConnectionLostError
from headrace.coordination.paths import ISR_CHANGES, LOG_DIR_EVENTS, partition_state_path
from headrace.coordination.tree.host import TreeHost
from headrace.coordination.znodes import PartitionState
from headrace.log.config import LogConfig
from headrace.log.disk import Disk
from headrace.log.log_manager import LogManager
from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record, decode_records
from headrace.protocol.records import iter_headers
from headrace.protocol.wire.client_codec import decode_response, encode_request
from headrace.protocol.wire.server_codec import encode_response, read_request_header, server_codec
from headrace.replication.partitions import Partitions
from headrace.runtime.clock import SystemClock

TOPIC_ID = UUID(int=7)


def batch(*values, base_offset=0, **fields):
    now_ms = SystemClock().wall_ms()
    records = [Record(offset, now_ms, None, value, ()) for offset, value in enumerate(values, start=base_offset)]
    return build_batch(records, base_offset=base_offset, **fields)


async def until(condition, what="it", timeout_s=10.0):
    """Waits for something to become true."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what} has not come"
        await asyncio.sleep(0.002)


class ServerSide:
    """As much of a broker's connection as handlers see."""

    def __init__(self):
        self.is_closed = False
        self.on_next_request_arrived = None
        self.listener_name = "PLAINTEXT"
        self.waiting = []

    @property
    def has_more(self):
        return bool(self.waiting)

    def abort(self, reason):
        self.is_closed = True


class ClientSide:
    """As much of a client's connection as fetchers use, to a broker of this process."""

    def __init__(self, harness, broker_id):
        self._harness = harness
        self._broker_id = broker_id
        self.server = ServerSide()
        self._numbers = count()
        self._task = None

    def send(self, api, version, fields, *, timeout_ms=None, is_raw=False):
        future = asyncio.get_running_loop().create_future()
        frame = b"".join(bytes(part) for part in encode_request(api, version, next(self._numbers), "b", fields))[4:]
        self.server.waiting.append((api, version, frame, is_raw, future))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve())
        elif self.server.on_next_request_arrived is not None:
            self.server.on_next_request_arrived()
        return future

    async def ask(self, api, *, version, **fields):
        return await self.send(api, version, fields)

    async def _serve(self):
        while self.server.waiting:
            api, version, frame, is_raw, future = self.server.waiting.pop(0)
            broker = self._harness.brokers.get(self._broker_id)
            if broker is None or self._harness.is_cut(self._broker_id):
                if not future.done():
                    future.set_exception(BrokerUnreachable("gone"))
                continue
            self._harness.served.append((api, self._broker_id))
            answer = await call(broker, api, version, frame, self.server)
            if not future.done():
                future.set_result(memoryview(answer) if is_raw else decode_response(api, version, answer))
        self._task = None


async def call(broker, api, version, frame, connection):
    """The answer's frame, from the correlation id on."""
    request = Request(read_request_header(memoryview(frame)), memoryview(frame), connection)
    request.slices = Slices(asyncio.get_running_loop(), SystemClock())
    request.read_body()
    reply = await bound_handler(api, broker)(request)
    if reply is None:
        return None
    out, placed = encode_response(server_codec(api, version), request.correlation_id, reply)
    parts, start = [], 0
    for position, sendable in placed:
        parts += [bytes(out[start:position]), sendable.read() if len(sendable) else b""]
        start = position
    return b"".join([*parts, bytes(out[start:])])[4:]


class Links:
    def __init__(self, harness):
        self._harness = harness

    async def connect(self, broker_id, purpose):
        if broker_id not in self._harness.brokers or self._harness.is_cut(broker_id):
            raise BrokerUnreachable(f"no broker {broker_id}")
        return ClientSide(self._harness, broker_id)

    async def drop(self, broker_id, purpose):
        pass


class Configs:
    def __init__(self, harness):
        self._harness = harness

    async def read_new_topic(self, topic):
        if self._harness.is_tree_away:
            raise ConnectionLostError
        return self._harness.topic_configs.get(topic, {})

    def of_topic(self, topic):
        return {}

    def read_again(self):
        self._harness.are_settings_wanted = True


class Broker:
    """It is a Services too, with as much as its handlers ask for."""

    def __init__(self, harness, broker_id, folders, settings, disk=None):
        self.broker_id = broker_id
        self.authorizer = AllowAll()
        self.loop = asyncio.get_running_loop()
        self.config = BrokerConfig.load(
            {
                "broker.id": str(broker_id),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(folders[0]),
                **settings,
            }
        )
        self.clock = SystemClock()
        self.runtime = BrokerRuntime(self.loop, self.clock, io_threads=1)
        self.run_blocking = self.runtime.run_blocking
        self.read_records = self.runtime.read_records
        self.metadata = MetadataCache("c")
        self.partitions = Partitions(self.metadata.has_partition)
        self.metrics = Metrics(topic_exists=lambda name: True)
        self.throttling = Throttling(ClientQuotas(), self.clock, self.runtime.timer, Windows())
        self.purgatories = Purgatories(self.runtime.timer)
        self.delayed_fetch = self.purgatories.fetch
        self.delayed_delete_records = self.purgatories.delete_records
        self.commit_waits = CommitWaits(self.loop, self.purgatories.produce)
        self.current_leaders = CurrentLeaders(broker_id, self.metadata, self.nodes_seen_by)
        self.fetch_sessions = FetchSessions(self.clock, slots=lambda: 10, eviction_ms=lambda: 1000)
        self.relocations = self.transactions = None
        self.coordination = LocalCoordination(harness.tree)
        self.roles = []
        config = LogConfig()
        self.logs = LogManager(
            folders,
            default_config=config,
            clock=self.clock,
            broker_id=broker_id,
            cluster_id="c",
            disk=disk or Disk(),
            on_offline=lambda folder, error: self.loop.call_soon_threadsafe(self.log_dirs_failed),
        )
        self.logs.load()
        self.fence = ControllerFence(lambda: 0)
        self.replicas = ReplicaManager(
            ReplicaContext(
                broker_id=broker_id,
                config=self.config,
                runtime=self.runtime,
                metadata=self.metadata,
                partitions=self.partitions,
                logs=self.logs,
                purgatories=self.purgatories,
                coordination=self.coordination,
                configs=Configs(harness),
                links=Links(harness),
                fence=self.fence,
                on_leadership_changed=lambda *role: self.roles.append(role),
                on_log_deleted=lambda log: None,
            )
        )
        self.followers = self.replicas.sessions
        self.replicas.start()

    @property
    def role(self):
        """For metrics, as a member of a cluster."""
        return SimpleNamespace(metrics=lambda: MemberMetrics(self))

    def log_dirs_failed(self):
        self.replicas.log_dirs_failed()

    def nodes_seen_by(self, connection):
        return list(self.metadata.nodes.values())

    def partition(self, topic="t", index=0):
        return self.partitions.get(topic, index)

    async def ask(self, api, version, **fields):
        frame = b"".join(bytes(part) for part in encode_request(api, version, 1, "test", fields))[4:]
        answer = await call(self, api, version, frame, ServerSide())
        return None if answer is None else decode_response(api, version, answer)

    async def produce(self, *values, topic="t", index=0, acks=-1, timeout_ms=5000, **fields):
        records = batch(*values, **fields)
        answer = await self.ask(
            Api.PRODUCE,
            12,
            acks=acks,
            timeout=timeout_ms,
            topic_data=[{"name": topic, "partition_data": [{"index": index, "records": records}]}],
        )
        return answer.responses[0].partition_responses[0]

    async def fetch(self, offset=0, *, topic="t", index=0, version=12, max_wait_ms=0, rack="", epoch=-1):
        answer = await self.ask(
            Api.FETCH,
            version,
            replica_id=-1,
            max_wait=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": index,
                            "current_leader_epoch": epoch,
                            "fetch_offset": offset,
                            "last_fetched_epoch": -1,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1 << 20,
                        }
                    ],
                }
            ],
            forgotten_topics_data=(),
            rack_id=rack,
        )
        return answer.responses[0].partitions[0]

    def values(self, topic="t", index=0):
        """All that the log has."""
        log, found, offset = self.logs.get(topic, index), [], 0
        offset = log.log_start_offset
        while offset < log.next_offset:
            region = log.read(offset, 1 << 20, until_offset=log.next_offset).region
            data = region.read()
            for position, header in iter_headers(data):
                found += [record.value for record in decode_records(data[position : position + header.size_bytes])]
                offset = header.next_offset
        return found

    async def close(self):
        await self.replicas.stop()
        self.logs.close()
        self.runtime.stop()


class BrokerReplicaHarness:
    def __init__(self, folder):
        self.folder = folder
        self.tree = TreeHost(SystemClock())
        self.relocations = self.transactions = None
        self.coordination = LocalCoordination(self.tree)
        self.brokers = {}
        self.topic_configs = {}
        self.served = []
        self.cut = set()
        self.is_tree_away = False
        self.are_settings_wanted = False
        self.states = {}

    def is_cut(self, broker_id):
        return broker_id in self.cut

    async def open(self):
        for path in (ISR_CHANGES, LOG_DIR_EVENTS):
            await self.coordination.create(path, make_parents=True)

    def start(self, broker_id, *, folders=1, disk=None, **settings):
        dotted = {name.replace("_", "."): str(value) for name, value in settings.items()}
        paths = [self.folder / f"broker{broker_id}" / f"dir{number}" for number in range(folders)]
        for path in paths:
            path.mkdir(parents=True, exist_ok=True)
        broker = self.brokers[broker_id] = Broker(self, broker_id, paths, dotted, disk)
        for one in self.brokers.values():
            rack = one.config.optional_str("broker.rack")
            for other in self.brokers.values():
                other.metadata.nodes[one.broker_id] = Node(one.broker_id, "h", 1, rack)
        return broker

    async def lead(
        self, leader, replicas, *, topic="t", index=0, epoch=0, isr=None, to=None, is_new=True, topic_id=TOPIC_ID
    ):
        """The controller writes the state, and tells the brokers. The codes that they answer."""
        path, state = partition_state_path(topic, index), PartitionState(leader, epoch, tuple(isr or replicas), 1)
        if await self.coordination.exists(path) is None:
            await self.coordination.create(path, state.to_json(), make_parents=True)
            version = 0
        else:
            version = (await self.coordination.set(path, state.to_json())).version
        return {
            broker_id: await self.tell(
                broker_id, Leadership.of(state, version), replicas, topic, index, is_new=is_new, topic_id=topic_id
            )
            for broker_id in (replicas if to is None else to)
            if broker_id in self.brokers
        }

    async def tell(
        self, broker_id, leadership, replicas, topic="t", index=0, *, is_new=True, topic_id=TOPIC_ID, controller_epoch=1
    ):
        told = LeaderAndIsrPartition(topic, index, leadership, Assignment(tuple(replicas)), is_new)
        request = LeaderAndIsr(broker_id, 0, 1, controller_epoch, (told,), {topic: topic_id}, ())
        answer = await self.brokers[broker_id].replicas.become_leader_or_follower(request)
        return answer.partitions.get((topic, index), answer.error)

    async def stop(self, broker_id, *, topic="t", index=0, epoch=-2, delete=False):
        request = StopReplica(broker_id, 0, 1, 1, (StoppedPartition(topic, index, epoch, delete),))
        answer = await self.brokers[broker_id].replicas.stop_replicas(request)
        return answer.partitions.get((topic, index), answer.error)

    async def state(self, topic="t", index=0):
        data, _ = await self.coordination.get(partition_state_path(topic, index))
        return PartitionState.from_json(data)

    async def until_children(self, path):
        """Waits until a znode has some."""
        async with asyncio.timeout(10):
            while not (names := await self.coordination.children(path)):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        return names

    async def end(self, broker_id):
        """The broker stops, cleanly."""
        broker = self.brokers.pop(broker_id)
        await broker.close()
        for other in self.brokers.values():
            other.metadata.nodes.pop(broker_id, None)

    async def close(self):
        for broker_id in list(self.brokers):
            await self.end(broker_id)


__all__ = ["TOPIC_ID", "BrokerReplicaHarness", "batch", "until"]
