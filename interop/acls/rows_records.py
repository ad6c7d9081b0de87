"""Rows of the ACL matrix: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.testing.raw_client import ClosedByPeer

from .cells import Cell, Kind, Op, Resource, Row, cluster, topic, txn
from .session import when_loaded

TOPIC_B = Resource(Kind.TOPIC, "b")
UNKNOWN_ID = UUID("11111111-2222-3333-4444-555555555555")
_OFFSETS = frozenset({"offset", "base_offset", "low_watermark", "end_offset"})


def batch(**options: Any) -> bytes:
    return build_batch([Record(0, 1_700_000_000_000, b"k", b"v", ())], **options)


def produce_fields(by_topic: dict[Any, bytes], *, key: str = "name", transactional_id: str | None = None) -> Any:
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [
            {key: name, "partition_data": [{"index": 0, "records": data}]} for name, data in by_topic.items()
        ],
    }


def _two(cell: Cell) -> dict[Any, bytes]:
    return {cell.name("a"): batch(), cell.name("b"): batch()}


def _two_by_id(cell: Cell) -> Any:
    ids = [cell.topic_ids["a"], cell.topic_ids["b"], UNKNOWN_ID]
    return produce_fields({each: batch() for each in ids}, key="topic_id")


def fill(cell: Cell, admin: Any) -> None:
    """One record in each topic of the cell."""
    admin.ask(Api.PRODUCE, 12, **produce_fields({cell.name(short): batch() for short in cell.row.topics}))


def _without_acks(cell: Cell, session: Any) -> Any:
    """A Produce without acknowledgement has no answer: an error closes the connection."""
    fields = {**produce_fields({cell.name("a"): batch()}), "acks": 0}
    session.send(Api.PRODUCE, 12, expects_answer=False, **fields)
    try:
        session.ask(Api.API_VERSIONS, 0)
    except ClosedByPeer:
        return {"closed": True}
    return {"closed": False}


def producer_id(cell: Cell, admin: Any) -> None:
    _keep_producer(cell, _init_producer(admin, None))


def transaction(cell: Cell, admin: Any) -> None:
    """A transactional id with a producer, without a transaction."""
    _keep_producer(cell, _init_producer(admin, cell.name("t")))


def _init_producer(admin: Any, transactional_id: str | None) -> Any:
    fields = {
        "transactional_id": transactional_id,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    return when_loaded(lambda: admin.ask(Api.INIT_PRODUCER_ID, 4, **fields), lambda answer: answer.error_code)


def _keep_producer(cell: Cell, answer: Any) -> None:
    assert not answer.error_code, answer
    cell.state.update(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)


def _idempotent(cell: Cell) -> Any:
    return produce_fields({cell.name("a"): batch(base_sequence=0, **cell.state)})


def _transactional(
    transactional_id: bool = True, *, names: tuple[str, ...] = ("a",), plain: tuple[str, ...] = ()
) -> Any:
    def request(cell: Cell) -> Any:
        marked = batch(base_sequence=0, is_transactional=True, **cell.state)
        batches = {cell.name(short): batch() for short in plain}
        batches.update({cell.name(short): marked for short in names})
        return produce_fields(batches, transactional_id=cell.name("t") if transactional_id else None)

    return request


_WRITES_TXN = (topic(Op.WRITE), txn(Op.WRITE))
PRODUCE = (
    Row(
        "produce_name",
        Api.PRODUCE,
        12,
        lambda cell: produce_fields(_two(cell)),
        (topic(Op.WRITE),),
        (TOPIC_B,),
        ("a", "b"),
    ),
    Row(
        "produce_old",
        Api.PRODUCE,
        3,
        lambda cell: produce_fields(_two(cell)),
        (topic(Op.WRITE),),
        (TOPIC_B,),
        ("a", "b"),
    ),
    Row("produce_id", Api.PRODUCE, 13, _two_by_id, (topic(Op.WRITE),), (TOPIC_B,), ("a", "b")),
    Row(
        "produce_unknown",
        Api.PRODUCE,
        12,
        lambda cell: produce_fields({cell.name("c"): batch()}),
        (topic(Op.WRITE, "c"),),
    ),
    Row("produce_acks0", Api.PRODUCE, 12, lambda _: {}, (topic(Op.WRITE),), (), ("a",), ask=_without_acks),
    Row("produce_idempotent", Api.PRODUCE, 12, _idempotent, (topic(Op.WRITE),), (), ("a",), prepare=producer_id),
    Row("produce_txn", Api.PRODUCE, 12, _transactional(), _WRITES_TXN, (), ("a",), prepare=transaction),
    Row(
        "produce_txn_topic_only", Api.PRODUCE, 12, _transactional(), (topic(Op.WRITE),), (), ("a",), prepare=transaction
    ),
    Row("produce_txn_id_only", Api.PRODUCE, 12, _transactional(), (txn(Op.WRITE),), (), ("a",), prepare=transaction),
    # Crafted requests around the ACL of the transactional id (CVE-2018-17196).
    Row("produce_txn_no_id", Api.PRODUCE, 12, _transactional(False), _WRITES_TXN, (), ("a",), prepare=transaction),
    Row(
        "produce_txn_hidden",
        Api.PRODUCE,
        12,
        _transactional(names=("b",), plain=("a",)),
        (topic(Op.WRITE), topic(Op.WRITE, "b")),
        (),
        ("a", "b"),
        prepare=transaction,
    ),
    Row(
        "produce_plain_with_id",
        Api.PRODUCE,
        12,
        _transactional(names=(), plain=("a",)),
        (topic(Op.WRITE),),
        (),
        ("a",),
        prepare=transaction,
    ),
)


def _fetch_partition(**more: Any) -> dict[str, Any]:
    return {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000_000,
        "replica_directory_id": None,
        "high_watermark": 2**63 - 1,
        **more,
    }


def _fetch(topics: list[tuple[str, Any]], **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "cluster_id": None,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 10_000_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": (),
        "rack_id": "",
        "replica_id": -1,
        "replica_state": {"replica_id": -1, "replica_epoch": -1},
        "topics": [{key: name, "partitions": [_fetch_partition()]} for key, name in topics],
    }
    return {**fields, **more}


def _fetch_names(cell: Cell, **more: Any) -> Any:
    return _fetch([("topic", cell.name("a")), ("topic", cell.name("b")), ("topic", cell.name("c"))], **more)


def _fetch_ids(cell: Cell, **more: Any) -> Any:
    return _fetch([("topic_id", each) for each in (*cell.topic_ids.values(), UNKNOWN_ID)], **more)


def _replica(version: int) -> Any:
    """Another broker's id: a client that claims to be a replica (CVE-2018-1288)."""

    def request(cell: Cell) -> Any:
        if version < 13:
            return _fetch_names(cell, replica_id=1)
        return _fetch_ids(cell, replica_state={"replica_id": 1, "replica_epoch": -1})

    return request


def _fetch_session(cell: Cell, session: Any) -> Any:
    """A new session, then an incremental fetch that names nothing."""
    first = session.ask(Api.FETCH, 17, **_fetch_ids(cell, session_epoch=0))
    if first.error_code or not first.session_id:
        return {"first": first, "has_session": bool(first.session_id)}
    second = session.ask(Api.FETCH, 17, **_fetch([], session_id=first.session_id, session_epoch=1))
    return {"first": first, "second": second}


_READS = (topic(Op.READ),)
_C = Resource(Kind.TOPIC, "c")
FETCH = (
    Row("fetch_name", Api.FETCH, 12, _fetch_names, _READS, (TOPIC_B, _C), ("a", "b"), prepare=fill),
    Row("fetch_old", Api.FETCH, 4, _fetch_names, _READS, (TOPIC_B, _C), ("a", "b"), prepare=fill),
    Row("fetch_id", Api.FETCH, 17, _fetch_ids, _READS, (TOPIC_B,), ("a", "b"), prepare=fill),
    Row("fetch_session", Api.FETCH, 17, _fetch_ids, _READS, (TOPIC_B,), ("a", "b"), prepare=fill, ask=_fetch_session),
    Row("fetch_replica_name", Api.FETCH, 12, _replica(12), (cluster(Op.CLUSTER_ACTION),), (), ("a", "b"), prepare=fill),
    Row("fetch_replica_id", Api.FETCH, 17, _replica(17), (cluster(Op.CLUSTER_ACTION),), (), ("a", "b"), prepare=fill),
    Row(
        "fetch_replica_read", Api.FETCH, 12, _replica(12), (*_READS, topic(Op.READ, "b")), (), ("a", "b"), prepare=fill
    ),
)


def _list_offsets(cell: Cell) -> Any:
    partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    names = [{"name": cell.name(short), "partitions": partitions} for short in ("a", "b", "c")]
    return {"replica_id": -1, "isolation_level": 0, "topics": names, "timeout": 10_000}


def _epochs(replica_id: int) -> Any:
    def request(cell: Cell) -> Any:
        partitions = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
        names = [{"topic": cell.name(short), "partitions": partitions} for short in ("a", "b", "c")]
        return {"replica_id": replica_id, "topics": names}

    return request


def _delete_records(cell: Cell) -> Any:
    partitions = [{"partition_index": 0, "offset": 1}]
    return {
        "topics": [{"name": cell.name(short), "partitions": partitions} for short in ("a", "b", "c")],
        "timeout": 9_000,
    }


def _describe_producers(cell: Cell) -> Any:
    return {"topics": [{"name": cell.name(short), "partition_indexes": [0]} for short in ("a", "b", "c")]}


_AB = ("a", "b")
OTHERS = (
    *tuple(
        Row(
            f"list_offsets_v{version}",
            Api.LIST_OFFSETS,
            version,
            _list_offsets,
            (topic(Op.DESCRIBE),),
            (),
            _AB,
            prepare=fill,
            shows=_OFFSETS,
        )
        for version in (1, 7, 11)
    ),
    Row(
        "epochs",
        Api.OFFSET_FOR_LEADER_EPOCH,
        4,
        _epochs(-1),
        (topic(Op.DESCRIBE),),
        (),
        _AB,
        prepare=fill,
        shows=_OFFSETS,
    ),
    Row(
        "epochs_debug",
        Api.OFFSET_FOR_LEADER_EPOCH,
        4,
        _epochs(-2),
        (topic(Op.DESCRIBE),),
        (),
        _AB,
        prepare=fill,
        shows=_OFFSETS,
    ),
    Row(
        "epochs_replica",
        Api.OFFSET_FOR_LEADER_EPOCH,
        4,
        _epochs(1),
        (cluster(Op.CLUSTER_ACTION),),
        (),
        _AB,
        prepare=fill,
        shows=_OFFSETS,
    ),
    Row(
        "delete_records",
        Api.DELETE_RECORDS,
        2,
        _delete_records,
        (topic(Op.DELETE),),
        (TOPIC_B,),
        _AB,
        prepare=fill,
        shows=_OFFSETS,
    ),
    Row(
        "describe_producers",
        Api.DESCRIBE_PRODUCERS,
        0,
        _describe_producers,
        (topic(Op.READ),),
        (TOPIC_B,),
        _AB,
        prepare=fill,
    ),
)
ROWS = PRODUCE + FETCH + OTHERS
