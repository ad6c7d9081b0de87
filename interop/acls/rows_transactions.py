"""Rows of the ACL matrix: producer ids and transactions."""

from __future__ import annotations

from typing import Any

from headrace.protocol.api import Api

from .cells import ALLOW, DENY, PREFIXED, Cell, Column, Kind, Need, Op, Resource, Row, cluster, group, topic, txn
from .rows_records import TOPIC_B, transaction

_AB = ("a", "b")


def _init(short: str | None) -> Any:
    def request(cell: Cell) -> Any:
        return {
            "transactional_id": short and cell.name(short),
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": False,
            "keep_prepared_txn": False,
        }

    return request


def _any_topic_columns() -> tuple[Column, ...]:
    """Who may have a producer id: WRITE on any topic is enough, unless a DENY takes it away."""
    write = Need(Op.WRITE, Kind.TOPIC, "a")
    idempotent = Need(Op.IDEMPOTENT_WRITE, Kind.CLUSTER, "kafka-cluster")

    def acls(*makers: Any) -> Any:
        return lambda cell: [make(cell) for make in makers]

    def deny(need: Need, **more: Any) -> Any:
        return lambda cell: cell.acl(need, permission=DENY, **more)

    def allow(need: Need, **more: Any) -> Any:
        return lambda cell: cell.acl(need, permission=ALLOW, **more)

    star = Need(Op.WRITE, Kind.TOPIC, "*")
    return (
        Column("write", acls(allow(write))),
        Column("read", acls(allow(topic(Op.READ)))),
        Column("all", acls(allow(topic(Op.ALL)))),
        Column("prefixed", acls(allow(write, pattern=PREFIXED, name="an"))),
        Column("star", acls(allow(star))),
        Column("deny_same", acls(allow(write), deny(write))),
        Column("deny_other", acls(allow(write), deny(topic(Op.WRITE, "b")))),
        Column("deny_star", acls(allow(write), deny(star))),
        Column("deny_all_star", acls(allow(write), deny(Need(Op.ALL, Kind.TOPIC, "*")))),
        Column("deny_read_star", acls(allow(write), deny(Need(Op.READ, Kind.TOPIC, "*")))),
        Column(
            "deny_prefix", acls(allow(write, name="anyprefix-topic"), deny(write, pattern=PREFIXED, name="anyprefix"))
        ),
        Column(
            "deny_longer",
            acls(allow(write, pattern=PREFIXED, name="any"), deny(write, pattern=PREFIXED, name="anyprefix")),
        ),
        Column(
            "deny_shorter",
            acls(allow(write, pattern=PREFIXED, name="anyprefix"), deny(write, pattern=PREFIXED, name="any")),
        ),
        Column("idempotent", acls(allow(idempotent))),
        Column("deny_idempotent", acls(allow(write), deny(idempotent))),
        Column("other_host", acls(allow(write, host="10.9.8.7"))),
        Column("this_host", acls(allow(write, host="127.0.0.1"))),
        Column("deny_other_host", acls(allow(write), deny(star, host="10.9.8.7"))),
        Column("group_write", acls(allow(Need(Op.WRITE, Kind.TRANSACTIONAL_ID, "t")))),
    )


PRODUCERS = (
    Row("init_idempotent", Api.INIT_PRODUCER_ID, 4, _init(None), (cluster(Op.IDEMPOTENT_WRITE),)),
    Row("init_idempotent_v0", Api.INIT_PRODUCER_ID, 0, _init(None), (cluster(Op.IDEMPOTENT_WRITE),)),
    Row("init_by_topic", Api.INIT_PRODUCER_ID, 4, _init(None), (topic(Op.WRITE),)),
    Row("init_rules", Api.INIT_PRODUCER_ID, 4, _init(None), columns=_any_topic_columns()),
    Row("init_txn", Api.INIT_PRODUCER_ID, 4, _init("t"), (txn(Op.WRITE),), prepare=transaction),
    Row("init_txn_v5", Api.INIT_PRODUCER_ID, 5, _init("t"), (txn(Op.WRITE),), prepare=transaction),
)


def _txn_fields(cell: Cell, **more: Any) -> dict[str, Any]:
    return {"transactional_id": cell.name("t"), **cell.state, **more}


def _names(cell: Cell, *shorts: str) -> list[dict[str, Any]]:
    return [{"name": cell.name(short), "partitions": [0]} for short in shorts]


def _add(*shorts: str) -> Any:
    return lambda cell: {
        f"v3_and_below_{name}": value for name, value in _txn_fields(cell, topics=_names(cell, *shorts)).items()
    }


def _add_batch(verify_only: bool) -> Any:
    return lambda cell: {"transactions": [_txn_fields(cell, verify_only=verify_only, topics=_names(cell, "a", "b"))]}


def _commit(*shorts: str) -> Any:
    def request(cell: Cell) -> Any:
        partition = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        topics = [{"name": cell.name(short), "partitions": [partition]} for short in shorts]
        return _txn_fields(
            cell, group_id=cell.name("g"), generation_id=-1, member_id="", group_instance_id=None, topics=topics
        )

    return request


def _with_partition(cell: Cell, admin: Any) -> None:
    """An open transaction with the partitions of a and b."""
    transaction(cell, admin)
    answer = admin.ask(Api.ADD_PARTITIONS_TO_TXN, 3, **_add("a", "b")(cell))
    assert not answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, answer


def _with_offsets(cell: Cell, admin: Any) -> None:
    _with_partition(cell, admin)
    assert not admin.ask(Api.ADD_OFFSETS_TO_TXN, 3, **_txn_fields(cell, group_id=cell.name("g"))).error_code


def _markers(cell: Cell) -> Any:
    topics = [{"name": cell.name(short), "partition_indexes": [0]} for short in ("a", "c")]
    marker = {
        "producer_id": 424_242,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": topics,
        "coordinator_epoch": 0,
        "transaction_version": 0,
    }
    return {"markers": [marker]}


def _list(cell: Cell) -> Any:
    return {"state_filters": (), "producer_id_filters": (), "duration_filter": -1, "transactional_id_pattern": None}


_WRITES, _G = (txn(Op.WRITE),), Resource(Kind.GROUP, "g")
_U = Resource(Kind.TRANSACTIONAL_ID, "u")
TRANSACTIONS = (
    Row(
        "add_partitions",
        Api.ADD_PARTITIONS_TO_TXN,
        3,
        _add("a"),
        (*_WRITES, topic(Op.WRITE)),
        (),
        _AB,
        prepare=transaction,
    ),
    Row(
        "add_partitions_mixed",
        Api.ADD_PARTITIONS_TO_TXN,
        3,
        _add("a", "b", "c"),
        (*_WRITES, topic(Op.WRITE)),
        (TOPIC_B,),
        _AB,
        prepare=transaction,
    ),
    Row(
        "add_partitions_topic",
        Api.ADD_PARTITIONS_TO_TXN,
        3,
        _add("a"),
        (topic(Op.WRITE),),
        (),
        _AB,
        prepare=transaction,
    ),
    Row(
        "add_partitions_batch",
        Api.ADD_PARTITIONS_TO_TXN,
        4,
        _add_batch(False),
        (cluster(Op.CLUSTER_ACTION),),
        (),
        _AB,
        prepare=transaction,
    ),
    Row(
        "add_partitions_verify",
        Api.ADD_PARTITIONS_TO_TXN,
        5,
        _add_batch(True),
        (cluster(Op.CLUSTER_ACTION),),
        (),
        _AB,
        prepare=transaction,
    ),
    Row(
        "add_partitions_writer",
        Api.ADD_PARTITIONS_TO_TXN,
        4,
        _add_batch(False),
        (*_WRITES, topic(Op.WRITE), topic(Op.WRITE, "b")),
        (),
        _AB,
        prepare=transaction,
    ),
    Row(
        "add_offsets",
        Api.ADD_OFFSETS_TO_TXN,
        4,
        lambda cell: _txn_fields(cell, group_id=cell.name("g")),
        (*_WRITES, group(Op.READ)),
        (),
        prepare=transaction,
    ),
    Row(
        "add_offsets_txn",
        Api.ADD_OFFSETS_TO_TXN,
        3,
        lambda cell: _txn_fields(cell, group_id=cell.name("g")),
        _WRITES,
        (_G,),
        prepare=transaction,
    ),
    Row(
        "txn_commit",
        Api.TXN_OFFSET_COMMIT,
        3,
        _commit("a"),
        (*_WRITES, group(Op.READ), topic(Op.READ)),
        (),
        _AB,
        prepare=_with_offsets,
    ),
    Row(
        "txn_commit_mixed",
        Api.TXN_OFFSET_COMMIT,
        4,
        _commit("a", "b", "c"),
        (*_WRITES, group(Op.READ), topic(Op.READ)),
        (TOPIC_B,),
        _AB,
        prepare=_with_offsets,
    ),
    Row(
        "txn_commit_group",
        Api.TXN_OFFSET_COMMIT,
        3,
        _commit("a"),
        (*_WRITES, topic(Op.READ)),
        (_G,),
        _AB,
        prepare=_with_offsets,
    ),
    Row(
        "txn_commit_txn",
        Api.TXN_OFFSET_COMMIT,
        3,
        _commit("a"),
        (group(Op.READ), topic(Op.READ)),
        (),
        _AB,
        prepare=_with_offsets,
    ),
    Row(
        "end_txn",
        Api.END_TXN,
        3,
        lambda cell: _txn_fields(cell, committed=True),
        _WRITES,
        (),
        _AB,
        prepare=_with_partition,
    ),
    Row("markers", Api.WRITE_TXN_MARKERS, 1, _markers, (cluster(Op.CLUSTER_ACTION),), (), ("a",)),
    Row("markers_alter", Api.WRITE_TXN_MARKERS, 1, _markers, (cluster(Op.ALTER),), (), ("a",)),
    Row(
        "describe_txn",
        Api.DESCRIBE_TRANSACTIONS,
        0,
        lambda cell: {"transactional_ids": [cell.name("t"), cell.name("u")]},
        (txn(Op.DESCRIBE), topic(Op.DESCRIBE)),
        (_U,),
        _AB,
        prepare=_with_partition,
    ),
    Row(
        "describe_txn_only",
        Api.DESCRIBE_TRANSACTIONS,
        0,
        lambda cell: {"transactional_ids": [cell.name("t")]},
        (txn(Op.DESCRIBE),),
        (_U,),
        _AB,
        prepare=_with_partition,
    ),
    Row(
        "list_txn",
        Api.LIST_TRANSACTIONS,
        1,
        _list,
        (txn(Op.DESCRIBE),),
        (),
        _AB,
        prepare=_with_partition,
        only_own=True,
    ),
    Row(
        "list_txn_cluster",
        Api.LIST_TRANSACTIONS,
        1,
        _list,
        (cluster(Op.DESCRIBE),),
        (),
        _AB,
        prepare=_with_partition,
        only_own=True,
    ),
)
ROWS = PRODUCERS + TRANSACTIONS
