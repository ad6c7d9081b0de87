"""Converts the controller's requests and their responses between values and messages (API keys 4 to 6).

Two things are not in the messages. The epochs of live brokers are missing: after reading they are -1. And responses to
LeaderAndIsr have topic ids instead of names, so :func:`leader_and_isr_response` needs the request. (Topics that a Kafka
before 2.8 created have no id. A response has the order of the request, and that tells several of them apart.)

The topics and brokers of an UpdateMetadata are the same for all brokers, so they are encoded once for all brokers:
:class:`SharedMetadata`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from headrace.controller.decisions.broker_requests import (
    LeaderAndIsr,
    LeaderAndIsrPartition,
    LeaderAndIsrResponse,
    MetadataPartition,
    Request,
    StoppedPartition,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
)
from headrace.controller.decisions.context import LiveBroker
from headrace.controller.decisions.leader_elections import Leadership
from headrace.controller.decisions.reassignments import Assignment
from headrace.coordination.znodes import BrokerRegistration, Endpoint
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode, load_request_schema
from headrace.protocol.wire.encoder import nested_encoder

Body = dict[str, Any]
ControlledPartition = TypeVar("ControlledPartition", LeaderAndIsrPartition, MetadataPartition, StoppedPartition)

_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
#: The protocol of a listener whose registration names none.
_NO_PROTOCOL = -1
_PROTOCOL_NAMES = {number: name for name, number in _PROTOCOLS.items()}
#: The epoch and the time of brokers that were read from a request.
_UNKNOWN_EPOCH = -1
_UNKNOWN_TIME_MS = -1


# -- from values to messages


def address_of(broker: LiveBroker, listener: str) -> tuple[str, int] | None:
    """The address of a broker's listener; None if the broker has no such listener."""
    return next(((one.host, one.port) for one in broker.registration.endpoints if one.listener == listener), None)


def leader_and_isr_body(request: LeaderAndIsr, listener: str) -> Body:
    """
    :param listener: the name of the listener that brokers use among each other.
    """
    return {
        **_head(request),
        "topic_states": _topics(request.partitions, _leader_and_isr_state, request.topic_ids),
        "live_leaders": [
            {"broker_id": broker.broker_id, "host_name": address[0], "port": address[1]}
            for broker in request.live_leaders
            if (address := address_of(broker, listener)) is not None
        ],
    }


def stop_replica_body(request: StopReplica) -> Body:
    return {**_head(request), "topic_states": _topics(request.partitions, _stop_replica_state)}


class SharedMetadata:
    """The part of UpdateMetadata requests that is the same for all brokers."""

    def __init__(self, request: UpdateMetadata) -> None:
        self._request = request
        self._encoded: dict[int, Body] = {}

    def fits(self, request: UpdateMetadata) -> bool:
        """Whether another request has the same content. Compares partitions by identity, because there may be many."""
        ours = self._request
        return request.partitions is ours.partitions and request.live_brokers == ours.live_brokers

    def body(self, request: UpdateMetadata, version: int) -> Body:
        """The body of a request that :meth:`fits`."""
        encoded = self._encoded.get(version)
        if encoded is None:
            ours = self._request
            encoded = self._encoded[version] = {
                "topic_states": _encode(
                    version, "topic_states", _topics(ours.partitions, _metadata_state, ours.topic_ids)
                ),
                "live_brokers": _encode(version, "live_brokers", map(_broker, ours.live_brokers)),
            }
        return {**_head(request), **encoded}


def _encode(version: int, name: str, items: Iterable[Body]) -> list[bytes]:
    encode = nested_encoder(load_request_schema(Api.UPDATE_METADATA, version), name)
    encoded = []
    for item in items:
        out = bytearray()
        encode(out, item, [])
        encoded.append(bytes(out))
    return encoded


def _head(request: Request) -> Body:
    return {
        "controller_id": request.controller_id,
        "controller_epoch": request.controller_epoch,
        "broker_epoch": request.broker_epoch,
    }


def _topics(
    partitions: Iterable[ControlledPartition],
    state_of: Callable[[ControlledPartition], Body],
    topic_ids: Mapping[str, UUID | None] | None = None,
) -> list[Body]:
    by_topic: dict[str, list[Body]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(state_of(partition))
    return [
        {"topic_name": topic, "topic_id": topic_ids and topic_ids.get(topic), "partition_states": states}
        for topic, states in by_topic.items()
    ]


def _leader_and_isr_state(partition: LeaderAndIsrPartition) -> Body:
    leadership, assignment = partition.leadership, partition.assignment
    return {
        "partition_index": partition.partition,
        "controller_epoch": leadership.controller_epoch,
        "leader": leadership.leader,
        "leader_epoch": leadership.leader_epoch,
        "isr": leadership.isr,
        "partition_epoch": leadership.version,
        "replicas": assignment.replicas,
        "adding_replicas": assignment.adding,
        "removing_replicas": assignment.removing,
        "is_new": partition.is_new,
        "leader_recovery_state": int(leadership.is_recovering),
    }


def _metadata_state(partition: MetadataPartition) -> Body:
    return {
        "partition_index": partition.partition,
        "controller_epoch": partition.leadership.controller_epoch,
        "leader": partition.leader,
        "leader_epoch": partition.leadership.leader_epoch,
        "isr": partition.leadership.isr,
        "zk_version": partition.leadership.version,
        "replicas": partition.replicas,
        "offline_replicas": partition.offline_replicas,
    }


def _stop_replica_state(partition: StoppedPartition) -> Body:
    return {
        "partition_index": partition.partition,
        "leader_epoch": partition.leader_epoch,
        "delete_partition": partition.is_deleted,
    }


def _broker(broker: LiveBroker) -> Body:
    return {
        "id": broker.broker_id,
        "endpoints": [
            {
                "port": one.port,
                "host": one.host,
                "listener": one.listener,
                "security_protocol": _PROTOCOLS.get(one.security_protocol, _NO_PROTOCOL),
            }
            for one in broker.registration.endpoints
        ],
        "rack": broker.rack,
    }


# -- from messages to values


def read_leader_and_isr(body: Any, broker_id: int, listener: str) -> LeaderAndIsr:
    """
    :param listener: the name of the listener that the leaders' addresses belong to. The message does not name it.
    """
    return LeaderAndIsr(
        broker_id,
        body.broker_epoch,
        body.controller_id,
        body.controller_epoch,
        tuple(
            LeaderAndIsrPartition(
                topic.topic_name,
                state.partition_index,
                Leadership(
                    state.leader,
                    state.leader_epoch,
                    state.isr,
                    state.controller_epoch,
                    state.partition_epoch,
                    state.leader_recovery_state == 1,
                ),
                Assignment(state.replicas, state.adding_replicas, state.removing_replicas),
                state.is_new,
            )
            for topic in body.topic_states
            for state in topic.partition_states
        ),
        {topic.topic_name: topic.topic_id for topic in body.topic_states},
        tuple(
            _live(leader.broker_id, [Endpoint(listener, "PLAINTEXT", leader.host_name, leader.port)], None)
            for leader in body.live_leaders
        ),
    )


def read_stop_replica(body: Any, broker_id: int) -> StopReplica:
    return StopReplica(
        broker_id,
        body.broker_epoch,
        body.controller_id,
        body.controller_epoch,
        tuple(
            StoppedPartition(topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition)
            for topic in body.topic_states
            for state in topic.partition_states
        ),
    )


def read_update_metadata(body: Any, broker_id: int) -> UpdateMetadata:
    """A leader of -2 means that the topic is being deleted. Then the message does not name the last leader."""
    return UpdateMetadata(
        broker_id,
        body.broker_epoch,
        body.controller_id,
        body.controller_epoch,
        tuple(
            MetadataPartition(
                topic.topic_name,
                state.partition_index,
                state.leader,
                Leadership(state.leader, state.leader_epoch, state.isr, state.controller_epoch, state.zk_version),
                state.replicas,
                state.offline_replicas,
            )
            for topic in body.topic_states
            for state in topic.partition_states
        ),
        {topic.topic_name: topic.topic_id for topic in body.topic_states},
        tuple(
            _live(
                broker.id,
                [
                    Endpoint(one.listener, _PROTOCOL_NAMES.get(one.security_protocol, ""), one.host, one.port)
                    for one in broker.endpoints
                ],
                broker.rack,
            )
            for broker in body.live_brokers
        ),
    )


def _live(broker_id: int, endpoints: Iterable[Endpoint], rack: str | None) -> LiveBroker:
    return LiveBroker(broker_id, _UNKNOWN_EPOCH, BrokerRegistration(tuple(endpoints), _UNKNOWN_TIME_MS, rack))


# -- responses


def leader_and_isr_reply(request: LeaderAndIsr, answer: LeaderAndIsrResponse) -> Body:
    errors: dict[str, list[Body]] = {topic: [] for topic in request.topic_ids}
    for (topic, index), code in answer.partitions.items():
        errors[topic].append({"partition_index": index, "error_code": code})
    topics = [
        {"topic_id": topic_id, "partition_errors": errors[topic]} for topic, topic_id in request.topic_ids.items()
    ]
    return {"error_code": answer.error, "topics": topics if answer.partitions else ()}


def leader_and_isr_response(request: LeaderAndIsr, response: Any) -> LeaderAndIsrResponse:
    names: dict[UUID | None, list[str]] = defaultdict(list)
    for topic in dict.fromkeys(
        partition.topic for partition in request.partitions
    ):  # in the order of the body's topics
        names[request.topic_ids.get(topic)].append(topic)
    partitions = {
        (topic, error.partition_index): ErrorCode(error.error_code)
        for answered in response.topics
        if names[answered.topic_id]
        for topic in (names[answered.topic_id].pop(0),)
        for error in answered.partition_errors
    }
    return LeaderAndIsrResponse(ErrorCode(response.error_code), partitions)


def stop_replica_reply(answer: StopReplicaResponse) -> Body:
    return {
        "error_code": answer.error,
        "partition_errors": [
            {"topic_name": topic, "partition_index": index, "error_code": code}
            for (topic, index), code in answer.partitions.items()
        ],
    }


def stop_replica_response(response: Any) -> StopReplicaResponse:
    partitions = {
        (error.topic_name, error.partition_index): ErrorCode(error.error_code) for error in response.partition_errors
    }
    return StopReplicaResponse(ErrorCode(response.error_code), partitions)
