"""Rows of the ACL matrix: metadata, topics, the cluster."""

from __future__ import annotations

from typing import Any

from headrace.protocol.api import Api

from .cells import Cell, Kind, Op, Resource, Row, cluster, topic
from .rows_records import TOPIC_B, UNKNOWN_ID

_C = Resource(Kind.TOPIC, "c")
_AB = ("a", "b")


def metadata_fields(topics: Any, *, creates: bool = False, operations: bool = True) -> dict[str, Any]:
    return {
        "topics": topics,
        "allow_auto_topic_creation": creates,
        "include_cluster_authorized_operations": operations,
        "include_topic_authorized_operations": operations,
    }


def _by_name(*shorts: str, **options: Any) -> Any:
    def request(cell: Cell) -> Any:
        return metadata_fields([{"topic_id": None, "name": cell.name(short)} for short in shorts], **options)

    return request


def _by_id(cell: Cell) -> Any:
    ids = (*cell.topic_ids.values(), UNKNOWN_ID)
    return metadata_fields([{"topic_id": each, "name": None} for each in ids])


def _many(cell: Cell) -> Any:
    """More names than a broker may answer at once; two of them exist."""
    names = ["a", "b", *(f"unknown{at}" for at in range(1_500))]
    return metadata_fields([{"topic_id": None, "name": cell.name(short)} for short in names], operations=False)


def _all(cell: Cell) -> Any:
    return metadata_fields(None)


_DESCRIBES = (topic(Op.DESCRIBE),)
_CREATES = (topic(Op.CREATE, "c"), topic(Op.DESCRIBE, "c"))
METADATA = (
    *(
        Row(f"metadata_name_v{version}", Api.METADATA, version, _by_name("a", "b", "c"), _DESCRIBES, (_C,), _AB)
        for version in (1, 4, 8, 12, 13)
    ),
    *(Row(f"metadata_id_v{version}", Api.METADATA, version, _by_id, _DESCRIBES, (), _AB) for version in (12, 13)),
    *(
        Row(f"metadata_all_v{version}", Api.METADATA, version, _all, _DESCRIBES, (), _AB, only_own=True)
        for version in (1, 8, 12)
    ),
    Row("metadata_many", Api.METADATA, 12, _many, _DESCRIBES, (), _AB, counts=True),
    Row("metadata_operations", Api.METADATA, 12, _by_name("a"), (topic(Op.READ), topic(Op.ALTER)), (), _AB),
    Row(
        "metadata_cluster_operations", Api.METADATA, 8, _by_name("a"), (cluster(Op.ALTER), cluster(Op.CREATE)), (), _AB
    ),
    Row("auto_create", Api.METADATA, 12, _by_name("c", creates=True), _CREATES, hides=frozenset({"partitions"})),
    Row(
        "auto_create_only", Api.METADATA, 12, _by_name("c", creates=True), _CREATES[:1], hides=frozenset({"partitions"})
    ),
    Row("auto_create_describe", Api.METADATA, 12, _by_name("c", creates=True), _CREATES[1:]),
    Row(
        "auto_create_cluster",
        Api.METADATA,
        12,
        _by_name("c", creates=True),
        (cluster(Op.CREATE), topic(Op.DESCRIBE, "c")),
        hides=frozenset({"partitions"}),
    ),
    Row("auto_create_old", Api.METADATA, 1, _by_name("c"), _CREATES, hides=frozenset({"partitions"})),
    Row(
        "auto_create_mixed",
        Api.METADATA,
        12,
        _by_name("a", "b", "c", "d", creates=True),
        _CREATES,
        (),
        _AB,
        hides=frozenset({"partitions"}),
    ),
)


def _topic_partitions(*shorts: str) -> Any:
    def request(cell: Cell) -> Any:
        names = [{"name": cell.name(short)} for short in shorts]
        return {"topics": names, "response_partition_limit": 2000, "cursor": None}

    return request


DESCRIBE = (
    Row("topic_partitions", Api.DESCRIBE_TOPIC_PARTITIONS, 0, _topic_partitions("a", "b", "c"), _DESCRIBES, (_C,), _AB),
    Row(
        "topic_partitions_read",
        Api.DESCRIBE_TOPIC_PARTITIONS,
        0,
        _topic_partitions("a", "b"),
        (topic(Op.READ),),
        (),
        _AB,
    ),
)


def _create(*shorts: str, partitions: int = 2, validate_only: bool = False) -> Any:
    def request(cell: Cell) -> Any:
        topics = [
            {
                "name": cell.name(short),
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": (),
                "configs": (),
            }
            for short in shorts
        ]
        return {"topics": topics, "timeout": 10_000, "validate_only": validate_only}

    return request


def _names(cell: Cell, *shorts: str) -> list[str]:
    return [cell.name(short) for short in shorts]


def _delete_names(cell: Cell) -> Any:
    return {"topic_names": _names(cell, "a", "b", "c"), "timeout": 10_000}


def _delete_by_name(cell: Cell) -> Any:
    return {"topics": [{"name": name, "topic_id": None} for name in _names(cell, "a", "b", "c")], "timeout": 10_000}


def _delete_by_id(cell: Cell) -> Any:
    ids = (*cell.topic_ids.values(), UNKNOWN_ID)
    return {"topics": [{"name": None, "topic_id": each} for each in ids], "timeout": 10_000}


def _partitions(cell: Cell) -> Any:
    topics = [{"name": name, "count": 2, "assignments": None} for name in _names(cell, "a", "b", "c")]
    return {"topics": topics, "timeout": 10_000, "validate_only": False}


_CREATE_C, _DELETE = (topic(Op.CREATE, "c"),), (topic(Op.DELETE),)
CHANGES = (
    Row("create_topics", Api.CREATE_TOPICS, 7, _create("b", "c", "d"), _CREATE_C, (TOPIC_B,), ("b",)),
    Row("create_topics_v4", Api.CREATE_TOPICS, 4, _create("b", "c", "d"), _CREATE_C, (TOPIC_B,), ("b",)),
    Row("create_topics_cluster", Api.CREATE_TOPICS, 7, _create("c", "d"), (cluster(Op.CREATE),)),
    Row("create_topics_configs", Api.CREATE_TOPICS, 7, _create("c"), (*_CREATE_C, topic(Op.DESCRIBE_CONFIGS, "c"))),
    Row("create_topics_check", Api.CREATE_TOPICS, 7, _create("c", validate_only=True), _CREATE_C),
    Row("create_topics_invalid", Api.CREATE_TOPICS, 7, _create("c", partitions=0), _CREATE_C),
    Row("delete_topics_v5", Api.DELETE_TOPICS, 5, _delete_names, _DELETE, (TOPIC_B, _C), _AB),
    Row("delete_topics_name", Api.DELETE_TOPICS, 6, _delete_by_name, _DELETE, (TOPIC_B, _C), _AB),
    Row("delete_topics_id", Api.DELETE_TOPICS, 6, _delete_by_id, _DELETE, (TOPIC_B,), _AB),
    Row("create_partitions", Api.CREATE_PARTITIONS, 3, _partitions, (topic(Op.ALTER),), (TOPIC_B, _C), _AB),
)


def _reassign(cell: Cell) -> Any:
    topics = [
        {"name": name, "partitions": [{"partition_index": 0, "replicas": None}]} for name in _names(cell, "a", "c")
    ]
    return {"timeout": 10_000, "allow_replication_factor_change": True, "topics": topics}


def _list_reassignments(cell: Cell) -> Any:
    return {"timeout": 10_000, "topics": [{"name": cell.name("a"), "partition_indexes": [0]}]}


def _elect(cell: Cell) -> Any:
    return {"election_type": 0, "topic_partitions": [{"topic": cell.name("a"), "partitions": [0]}], "timeout": 10_000}


def _log_dirs(cell: Cell) -> Any:
    return {"topics": [{"topic": cell.name("a"), "partitions": [0]}]}


def _move_log_dirs(cell: Cell) -> Any:
    return {"dirs": [{"path": "/nowhere", "topics": [{"name": cell.name("a"), "partitions": [0]}]}]}


_ALTERS, _CLUSTER = (cluster(Op.ALTER),), (cluster(Op.DESCRIBE),)
CLUSTER = (
    Row("reassign", Api.ALTER_PARTITION_REASSIGNMENTS, 1, _reassign, _ALTERS, (), ("a",)),
    Row("list_reassignments", Api.LIST_PARTITION_REASSIGNMENTS, 0, _list_reassignments, _CLUSTER, (), ("a",)),
    Row("elect_leaders", Api.ELECT_LEADERS, 2, _elect, _ALTERS, (), ("a",)),
    Row("elect_leaders_v0", Api.ELECT_LEADERS, 0, _elect, _ALTERS, (), ("a",)),
    Row("log_dirs", Api.DESCRIBE_LOG_DIRS, 4, _log_dirs, _CLUSTER, (), ("a",)),
    Row("log_dirs_v1", Api.DESCRIBE_LOG_DIRS, 1, _log_dirs, _CLUSTER, (), ("a",)),
    Row("move_log_dirs", Api.ALTER_REPLICA_LOG_DIRS, 2, _move_log_dirs, _ALTERS, (), ("a",)),
    *(
        Row(
            f"describe_cluster{name}",
            Api.DESCRIBE_CLUSTER,
            2,
            lambda _: {
                "include_cluster_authorized_operations": True,
                "endpoint_type": 1,
                "include_fenced_brokers": False,
            },
            needs,
        )
        for name, needs in {"": _CLUSTER, "_alter": (cluster(Op.ALTER_CONFIGS), cluster(Op.IDEMPOTENT_WRITE))}.items()
    ),
    Row(
        "describe_cluster_unasked",
        Api.DESCRIBE_CLUSTER,
        0,
        lambda _: {"include_cluster_authorized_operations": False},
        _CLUSTER,
    ),
    Row(
        "api_versions",
        Api.API_VERSIONS,
        4,
        lambda _: {"client_software_name": "matrix", "client_software_version": "1"},
    ),
)
ROWS = METADATA + DESCRIBE + CHANGES + CLUSTER
