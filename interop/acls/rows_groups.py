"""Rows of the ACL matrix: groups and their offsets."""

from __future__ import annotations

import time
from typing import Any

from headrace.protocol.api import Api

from .cells import Cell, Kind, Op, Resource, Row, cluster, group, topic
from .rows_records import TOPIC_B, UNKNOWN_ID
from .session import when_loaded

_AB = ("a", "b")
_G2 = Resource(Kind.GROUP, "h")
_REGEX_PATIENCE_S = 4.0


def _commit_partition(offset: int = 1) -> dict[str, Any]:
    return {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}


def commit_fields(group_id: str, topics: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [{**each, "partitions": [_commit_partition()]} for each in topics],
    }


def _commit_names(cell: Cell) -> Any:
    return commit_fields(cell.name("g"), [{"name": cell.name(short)} for short in ("a", "b", "c")])


def _commit_ids(cell: Cell) -> Any:
    return commit_fields(cell.name("g"), [{"topic_id": each} for each in (*cell.topic_ids.values(), UNKNOWN_ID)])


def groups(cell: Cell, admin: Any) -> None:
    """Two groups without members, with offsets of all topics."""
    for short in ("g", "h"):
        fields = commit_fields(cell.name(short), [{"name": cell.name(each)} for each in cell.row.topics])
        when_loaded(
            lambda fields=fields: admin.ask(Api.OFFSET_COMMIT, 9, **fields),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )


def _offset_fetch(topics: bool) -> Any:
    def request(cell: Cell) -> Any:
        names = [{"name": cell.name(short), "partition_indexes": [0]} for short in ("a", "b", "c")] if topics else None
        return {"group_id": cell.name("g"), "topics": names, "require_stable": False}

    return request


def _offset_fetch_groups(topics: bool, *, by_id: bool = False) -> Any:
    def request(cell: Cell) -> Any:
        wanted: Any = None
        if topics and by_id:
            wanted = [{"topic_id": each, "partition_indexes": [0]} for each in (*cell.topic_ids.values(), UNKNOWN_ID)]
        elif topics:
            wanted = [{"name": cell.name(short), "partition_indexes": [0]} for short in ("a", "b", "c")]
        named = [
            {"group_id": cell.name(short), "member_id": None, "member_epoch": -1, "topics": wanted}
            for short in ("g", "h")
        ]
        return {"groups": named, "require_stable": False}

    return request


_COMMITS = (group(Op.READ), topic(Op.READ))
_FETCHES = (group(Op.DESCRIBE), topic(Op.DESCRIBE))
OFFSETS = (
    *(
        Row(f"offset_commit_v{version}", Api.OFFSET_COMMIT, version, _commit_names, _COMMITS, (TOPIC_B,), _AB)
        for version in (2, 9)
    ),
    Row("offset_commit_v10", Api.OFFSET_COMMIT, 10, _commit_ids, _COMMITS, (TOPIC_B,), _AB),
    Row("offset_commit_group_only", Api.OFFSET_COMMIT, 9, _commit_names, (group(Op.READ),), (TOPIC_B,), _AB),
    *(
        Row(
            f"offset_fetch_v{version}",
            Api.OFFSET_FETCH,
            version,
            _offset_fetch(True),
            _FETCHES,
            (_G2,),
            _AB,
            prepare=groups,
        )
        for version in (1, 7)
    ),
    Row("offset_fetch_all_v7", Api.OFFSET_FETCH, 7, _offset_fetch(False), _FETCHES, (_G2,), _AB, prepare=groups),
    *(
        Row(
            f"offset_fetch_{kind}_v{version}",
            Api.OFFSET_FETCH,
            version,
            _offset_fetch_groups(kind == "named", by_id=version == 10),
            _FETCHES,
            (_G2,),
            _AB,
            prepare=groups,
        )
        for version in (8, 9, 10)
        for kind in ("named", "all")
    ),
    Row(
        "offset_delete",
        Api.OFFSET_DELETE,
        0,
        lambda cell: {
            "group_id": cell.name("g"),
            "topics": [{"name": cell.name(short), "partitions": [{"partition_index": 0}]} for short in ("a", "b", "c")],
        },
        (group(Op.DELETE), topic(Op.READ)),
        (TOPIC_B,),
        _AB,
        prepare=groups,
    ),
)


def _find(version: int, key_type: int, short: str) -> Any:
    def request(cell: Cell) -> Any:
        if version >= 4:
            return {"key_type": key_type, "coordinator_keys": [cell.name(short), cell.name("other")]}
        return {"key": cell.name(short), "key_type": key_type}

    return request


def _join(cell: Cell) -> Any:
    return {
        "group_id": cell.name("g"),
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
    }


def _sync(cell: Cell) -> Any:
    return {
        "group_id": cell.name("g"),
        "generation_id": 1,
        "member_id": "m",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": (),
    }


def _beat(cell: Cell) -> Any:
    return {"group_id": cell.name("g"), "generation_id": 1, "member_id": "m", "group_instance_id": None}


def _leave(cell: Cell) -> Any:
    return {"group_id": cell.name("g"), "members": [{"member_id": "m", "group_instance_id": None, "reason": None}]}


def _describe(*shorts: str) -> Any:
    return lambda cell: {"groups": [cell.name(short) for short in shorts], "include_authorized_operations": True}


_READS, _DESCRIBES, _ANY = (group(Op.READ),), (group(Op.DESCRIBE),), {"states_filter": (), "types_filter": ()}
CLASSIC = (
    *(
        Row(f"find_group_v{version}", Api.FIND_COORDINATOR, version, _find(version, 0, "g"), _DESCRIBES)
        for version in (1, 3, 6)
    ),
    *(
        Row(
            f"find_txn_v{version}",
            Api.FIND_COORDINATOR,
            version,
            _find(version, 1, "t"),
            (group(Op.DESCRIBE, "t")._replace(kind=Kind.TRANSACTIONAL_ID),),
        )
        for version in (2, 6)
    ),
    Row("join_group", Api.JOIN_GROUP, 9, _join, _READS),
    Row("join_group_v5", Api.JOIN_GROUP, 5, _join, _READS),
    Row("sync_group", Api.SYNC_GROUP, 5, _sync, _READS),
    Row("heartbeat", Api.HEARTBEAT, 4, _beat, _READS),
    Row("leave_group", Api.LEAVE_GROUP, 5, _leave, _READS),
    *(
        Row(
            f"describe_groups_v{version}",
            Api.DESCRIBE_GROUPS,
            version,
            _describe("g", "h", "x"),
            _DESCRIBES,
            (_G2,),
            _AB,
            prepare=groups,
        )
        for version in (2, 5, 6)
    ),
    Row("describe_groups_read", Api.DESCRIBE_GROUPS, 6, _describe("g"), _READS, (), _AB, prepare=groups),
    Row("list_groups", Api.LIST_GROUPS, 5, lambda _: _ANY, _DESCRIBES, (), _AB, prepare=groups, only_own=True),
    Row("list_groups_v0", Api.LIST_GROUPS, 0, lambda _: _ANY, _DESCRIBES, (), _AB, prepare=groups, only_own=True),
    Row(
        "list_groups_cluster",
        Api.LIST_GROUPS,
        5,
        lambda _: _ANY,
        (cluster(Op.DESCRIBE),),
        (),
        _AB,
        prepare=groups,
        only_own=True,
    ),
    Row(
        "delete_groups",
        Api.DELETE_GROUPS,
        2,
        lambda cell: {"groups_names": [cell.name(short) for short in ("g", "h", "x")]},
        (group(Op.DELETE),),
        (_G2,),
        _AB,
        prepare=groups,
    ),
)


def _heartbeat_fields(cell: Cell, *, names: tuple[str, ...] | None = None, regex: str | None = None) -> dict[str, Any]:
    return {
        "group_id": cell.name("k"),
        "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 10_000,
        "server_assignor": None,
        "topic_partitions": (),
        "subscribed_topic_names": None if names is None else [cell.name(short) for short in names],
        "subscribed_topic_regex": regex,
    }


def _heartbeat_regex(cell: Cell, session: Any) -> Any:
    """Joins by an expression, and waits until the member has topics, or until it is certain that there are none."""
    fields = _heartbeat_fields(cell, names=(), regex=f"{cell.prefix}.*")
    answer = session.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, **fields)
    ends = time.monotonic() + _REGEX_PATIENCE_S
    seen = {"error_code": answer.error_code, "assignment": _assigned(answer)}
    may_have = any(need.kind is Kind.TOPIC for need in cell.row.needs) or cell.column.name == "admin"
    while not answer.error_code and not seen["assignment"] and may_have and time.monotonic() < ends:
        time.sleep(0.05)
        again = {**fields, "member_epoch": answer.member_epoch, "topic_partitions": None, "rebalance_timeout": -1}
        again.update(subscribed_topic_names=None, subscribed_topic_regex=None)
        answer = session.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, **again)
        seen = {"error_code": answer.error_code, "assignment": _assigned(answer)}
    return seen


def _assigned(answer: Any) -> list[dict[str, Any]]:
    return (
        []
        if answer.assignment is None
        else [{"topic_id": each.topic_id} for each in answer.assignment.topic_partitions]
    )


def consumer_group(cell: Cell, admin: Any) -> None:
    """A group of the consumer protocol whose member subscribes to a and b."""
    fields = _heartbeat_fields(cell, names=("a", "b"))
    when_loaded(lambda: admin.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, **fields), lambda answer: answer.error_code)


def _heartbeat_names(*names: str) -> Any:
    return lambda cell: _heartbeat_fields(cell, names=names)


def _consumer_describe(cell: Cell) -> Any:
    return {"group_ids": [cell.name("k"), cell.name("x")], "include_authorized_operations": True}


_K = (group(Op.READ, "k"),)
_DESCRIBES_K = group(Op.DESCRIBE, "k")
_HIDDEN = frozenset({"member_id", "assignment", "target_assignment"})
CONSUMER = (
    Row(
        "consumer_heartbeat",
        Api.CONSUMER_GROUP_HEARTBEAT,
        1,
        _heartbeat_names("a"),
        (*_K, topic(Op.DESCRIBE)),
        (),
        _AB,
        hides=_HIDDEN,
    ),
    Row(
        "consumer_heartbeat_v0",
        Api.CONSUMER_GROUP_HEARTBEAT,
        0,
        _heartbeat_names("a"),
        (*_K, topic(Op.DESCRIBE)),
        (),
        _AB,
        hides=_HIDDEN,
    ),
    Row(
        "consumer_heartbeat_mixed",
        Api.CONSUMER_GROUP_HEARTBEAT,
        1,
        _heartbeat_names("a", "b"),
        (*_K, topic(Op.DESCRIBE)),
        (),
        _AB,
        hides=_HIDDEN,
    ),
    Row(
        "consumer_heartbeat_unknown", Api.CONSUMER_GROUP_HEARTBEAT, 1, _heartbeat_names("c"), _K, (), _AB, hides=_HIDDEN
    ),
    Row(
        "consumer_regex",
        Api.CONSUMER_GROUP_HEARTBEAT,
        1,
        lambda _: {},
        (*_K, topic(Op.DESCRIBE)),
        (TOPIC_B,),
        _AB,
        ask=_heartbeat_regex,
    ),
    Row("consumer_regex_none", Api.CONSUMER_GROUP_HEARTBEAT, 1, lambda _: {}, _K, (), _AB, ask=_heartbeat_regex),
    Row(
        "consumer_describe",
        Api.CONSUMER_GROUP_DESCRIBE,
        1,
        _consumer_describe,
        (_DESCRIBES_K, topic(Op.DESCRIBE), topic(Op.DESCRIBE, "b")),
        (),
        _AB,
        prepare=consumer_group,
        hides=_HIDDEN,
    ),
    Row(
        "consumer_describe_mixed",
        Api.CONSUMER_GROUP_DESCRIBE,
        1,
        _consumer_describe,
        (_DESCRIBES_K, topic(Op.DESCRIBE)),
        (),
        _AB,
        prepare=consumer_group,
        hides=_HIDDEN,
    ),
    Row(
        "consumer_describe_v0",
        Api.CONSUMER_GROUP_DESCRIBE,
        0,
        _consumer_describe,
        (_DESCRIBES_K,),
        (),
        _AB,
        prepare=consumer_group,
        hides=_HIDDEN,
    ),
)
ROWS = OFFSETS + CLASSIC + CONSUMER
