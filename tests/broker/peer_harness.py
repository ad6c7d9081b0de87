"""A broker as another one sees it over its socket: what it is asked is noted, what it answers is told beforehand."""

import asyncio
import struct

from headrace.controller.decisions.broker_requests import (
    LeaderAndIsr,
    LeaderAndIsrPartition,
    MetadataPartition,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)
from headrace.controller.decisions.context import LiveBroker
from headrace.controller.decisions.leader_elections import Leadership
from headrace.controller.decisions.reassignments import Assignment
from headrace.coordination.znodes import BrokerRegistration, Endpoint
from headrace.protocol.api import Api, versions_of
from headrace.protocol.wire.server_codec import encode_response, read_request_body, read_request_header

LISTENER = "BETWEEN"
_SERVED = (Api.API_VERSIONS, Api.LEADER_AND_ISR, Api.STOP_REPLICA, Api.UPDATE_METADATA, Api.CONTROLLED_SHUTDOWN)

#: What a peer may do instead of answering.
CUT = "cut"
HANG = "hang"


class Peer:
    def __init__(self):
        #: (api, body) in the order in which they came.
        self.asked = []
        self.connections = 0
        #: What to do with the next requests: a dict to answer with, CUT or HANG. Afterwards, ``otherwise``.
        self.script = []
        self._changed = asyncio.Event()
        self._writers = set()

    async def listen(self, port=0):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self):
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()
        await self.until(lambda: not self._writers)

    def live(self, broker_id, epoch):
        endpoint = Endpoint(LISTENER, "PLAINTEXT", "127.0.0.1", self.port)
        return LiveBroker(broker_id, epoch, BrokerRegistration((endpoint,), 0))

    async def until(self, condition):
        """Looked at whenever something was asked or has ended."""
        async with asyncio.timeout(10):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def _serve(self, reader, writer):
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                (size_bytes,) = struct.unpack(">i", await reader.readexactly(4))
                frame = memoryview(await reader.readexactly(size_bytes))
                header = read_request_header(frame)
                body, _ = read_request_body(header, frame)
                reply = _versions() if header.api is Api.API_VERSIONS else self._reply(header.api, body)
                if reply is CUT:
                    break
                if reply is not HANG:
                    data, _ = encode_response(header.codec, header.correlation_id, reply)
                    writer.write(data)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._changed.set()

    def _reply(self, api, body):
        self.asked.append((api, body))
        self._changed.set()
        return self.script.pop(0) if self.script else answer_to(api, body)


def _versions():
    return {
        "api_keys": [
            {"api_key": api, "min_version": versions_of(api)[0], "max_version": versions_of(api)[-1]} for api in _SERVED
        ]
    }


def answer_to(api, body):
    """All is well."""
    match api:
        case Api.LEADER_AND_ISR:
            return {
                "topics": [
                    {
                        "topic_id": topic.topic_id,
                        "partition_errors": [
                            {"partition_index": one.partition_index, "error_code": 0} for one in topic.partition_states
                        ],
                    }
                    for topic in body.topic_states
                ]
            }
        case Api.STOP_REPLICA:
            return {
                "partition_errors": [
                    {"topic_name": topic.topic_name, "partition_index": one.partition_index, "error_code": 0}
                    for topic in body.topic_states
                    for one in topic.partition_states
                ]
            }
        case Api.CONTROLLED_SHUTDOWN:
            return {"remaining_partitions": ()}
    return {}


# -- what a controller sends


def leaders(broker_id, epoch, topic_ids, *, live_leaders=(), indexes=(0,)):
    partitions = tuple(
        LeaderAndIsrPartition(topic, index, Leadership(1, 4, (1, 2), 7, 3), Assignment((1, 2, 3), (3,), (1,)), True)
        for topic in topic_ids
        for index in indexes
    )
    return LeaderAndIsr(broker_id, epoch, 1, 7, partitions, topic_ids, live_leaders)


def metadata(broker_id, epoch, topic_ids, *, live_brokers=(), indexes=(0,)):
    partitions = tuple(
        MetadataPartition(topic, index, 1, Leadership(1, 4, (1, 2), 7, 3), (1, 2, 3), (3,))
        for topic in topic_ids
        for index in indexes
    )
    return UpdateMetadata(broker_id, epoch, 1, 7, partitions, topic_ids, live_brokers)


def stop(broker_id, epoch, topic, *indexes):
    partitions = tuple(StoppedPartition(topic, index, 4, True) for index in indexes)
    return StopReplica(broker_id, epoch, 1, 7, partitions)
