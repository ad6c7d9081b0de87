"""Holds the fields of the messages that brokers of a cluster on ZooKeeper send each other (keys 4 to 7).

=================  ===  ==========================================================================================
LeaderAndIsr         4  controller to the replicas of a partition: its leader, and its in-sync replicas
StopReplica          5  controller to a replica: stop replicating a partition, and perhaps delete its log
UpdateMetadata       6  controller to all brokers: the live brokers, and the metadata of partitions for clients
ControlledShutdown   7  a broker to the controller: the broker will stop, so other brokers should take over as leaders
=================  ===  ==========================================================================================

Kafka 4 has dropped these messages, so kio has no schemas for them. The fields and their order are those of Kafka 3.9.
Only our own brokers send them, so only the versions that have all safety checks are here: the broker's epoch (KIP-380),
the leader's epoch (KIP-570) and the topic's id (KIP-516). ``kio.py`` lists the versions. All are flexible, except v2 of
ControlledShutdown.
"""

from functools import cache
from typing import NamedTuple

from kio.schema.request_header.v1.header import RequestHeader as RequestHeader1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeader2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeader0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseHeader1

from headrace.protocol.kio import EntityType
from headrace.protocol.layouts import Layout, Struct, schema_of


class Schemas(NamedTuple):
    request: type
    response: type


class _Message(NamedTuple):
    request: Struct
    response: Struct
    flexible_since: int


def _ids(name: str) -> Layout:
    return Layout(name, "int32", is_array=True)


def _partition_errors(name: str, *more: Layout) -> Layout:
    error = (*more, Layout("partition_index", "int32"), Layout("error_code", "error_code"))
    return Layout("partition_errors", Struct(name, error), is_array=True)


def _from_controller(kraft_since: int, *more: Layout) -> tuple[Layout, ...]:
    return (
        Layout("controller_id", "int32"),
        Layout("is_k_raft_controller", "bool", since=kraft_since, default=False),
        *more,
        Layout("controller_epoch", "int32"),
        Layout("broker_epoch", "int64", default=-1),
    )


def _by_topic(name: str, partition_states: Struct, *more: Layout) -> Layout:
    topic = (Layout("topic_name", "string"), *more, Layout("partition_states", partition_states, is_array=True))
    return Layout("topic_states", Struct(name, topic), is_array=True)


_LEADER_AND_ISR = _Message(
    Struct(
        "LeaderAndIsrRequest",
        (
            *_from_controller(7),
            #: Whether the request names all topics; 0 means unspecified.
            Layout("type", "int8", default=0),
            _by_topic(
                "LeaderAndIsrTopicState",
                Struct(
                    "LeaderAndIsrPartitionState",
                    (
                        Layout("partition_index", "int32"),
                        Layout("controller_epoch", "int32"),
                        Layout("leader", "int32"),
                        Layout("leader_epoch", "int32"),
                        _ids("isr"),
                        #: The version of the partition's state znode.
                        Layout("partition_epoch", "int32"),
                        _ids("replicas"),
                        _ids("adding_replicas"),
                        _ids("removing_replicas"),
                        Layout("is_new", "bool", default=False),
                        Layout("leader_recovery_state", "int8", since=6, default=0),
                    ),
                ),
                Layout("topic_id", "uuid"),
            ),
            Layout(
                "live_leaders",
                Struct(
                    "LeaderAndIsrLiveLeader",
                    (Layout("broker_id", "int32"), Layout("host_name", "string"), Layout("port", "int32")),
                ),
                is_array=True,
            ),
        ),
    ),
    Struct(
        "LeaderAndIsrResponse",
        (
            Layout("error_code", "error_code"),
            Layout(
                "topics",
                Struct(
                    "LeaderAndIsrTopicError",
                    (Layout("topic_id", "uuid"), _partition_errors("LeaderAndIsrPartitionError")),
                ),
                is_array=True,
            ),
        ),
    ),
    flexible_since=4,
)

_STOP_REPLICA = _Message(
    Struct(
        "StopReplicaRequest",
        (
            *_from_controller(4),
            _by_topic(
                "StopReplicaTopicState",
                Struct(
                    "StopReplicaPartitionState",
                    (
                        Layout("partition_index", "int32"),
                        Layout("leader_epoch", "int32", default=-1),
                        Layout("delete_partition", "bool"),
                    ),
                ),
            ),
        ),
    ),
    Struct(
        "StopReplicaResponse",
        (
            Layout("error_code", "error_code"),
            _partition_errors("StopReplicaPartitionError", Layout("topic_name", "string")),
        ),
    ),
    flexible_since=2,
)

_UPDATE_METADATA = _Message(
    Struct(
        "UpdateMetadataRequest",
        (
            *_from_controller(8, Layout("type", "int8", since=8, tag=0, default=0)),
            _by_topic(
                "UpdateMetadataTopicState",
                Struct(
                    "UpdateMetadataPartitionState",
                    (
                        Layout("partition_index", "int32"),
                        Layout("controller_epoch", "int32"),
                        Layout("leader", "int32"),
                        Layout("leader_epoch", "int32"),
                        _ids("isr"),
                        Layout("zk_version", "int32"),
                        _ids("replicas"),
                        _ids("offline_replicas"),
                    ),
                ),
                Layout("topic_id", "uuid"),
            ),
            Layout(
                "live_brokers",
                Struct(
                    "UpdateMetadataBroker",
                    (
                        Layout("id", "int32"),
                        Layout(
                            "endpoints",
                            Struct(
                                "UpdateMetadataEndpoint",
                                (
                                    Layout("port", "int32"),
                                    Layout("host", "string"),
                                    Layout("listener", "string"),
                                    Layout("security_protocol", "int16"),
                                ),
                            ),
                            is_array=True,
                        ),
                        Layout("rack", "string", is_nullable=True),
                    ),
                ),
                is_array=True,
            ),
        ),
    ),
    Struct("UpdateMetadataResponse", (Layout("error_code", "error_code"),)),
    flexible_since=6,
)

_CONTROLLED_SHUTDOWN = _Message(
    Struct("ControlledShutdownRequest", (Layout("broker_id", "int32"), Layout("broker_epoch", "int64", default=-1))),
    Struct(
        "ControlledShutdownResponse",
        (
            Layout("error_code", "error_code"),
            #: The partitions that the broker still leads.
            Layout(
                "remaining_partitions",
                Struct("RemainingPartition", (Layout("topic_name", "string"), Layout("partition_index", "int32"))),
                is_array=True,
            ),
        ),
    ),
    flexible_since=3,
)

_MESSAGES = {4: _LEADER_AND_ISR, 5: _STOP_REPLICA, 6: _UPDATE_METADATA, 7: _CONTROLLED_SHUTDOWN}


@cache
def schemas(api_key: int, version: int) -> Schemas:
    message = _MESSAGES[api_key]
    is_flexible = version >= message.flexible_since
    return Schemas(
        schema_of(
            message.request,
            version,
            is_flexible=is_flexible,
            type_=EntityType.request,
            header=RequestHeader2 if is_flexible else RequestHeader1,
        ),
        schema_of(
            message.response,
            version,
            is_flexible=is_flexible,
            type_=EntityType.response,
            header=ResponseHeader1 if is_flexible else ResponseHeader0,
        ),
    )
