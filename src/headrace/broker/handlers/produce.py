"""Produce (key 0): appends record batches.

Speaks v3 to v13 (by topic id from v13 on). A request has one batch per partition, of magic 2. With acks=0 there is no
answer. With acks=1 the answer comes when the batch is in the leader's log, with acks=-1 when all in-sync replicas have
it, or when the request's timeout has passed. If the topic flushes by count (``flush.messages``), the answer waits for
fsync. If another broker leads a partition, the answer names that broker (KIP-951).

A batch of more than a mebibyte is checked and written on a thread, before it is appended (``log/early_write.py``).
Other requests that append to its partition wait for it; all other requests go on.

The broker checks a transactional batch with the coordinator of the transaction first (``transactional_produce.py``).
From v12 on the write itself adds its partition to the transaction (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.authorization.checks import allowed_topics
from headrace.broker.metadata_cache import INTERNAL_TOPICS
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.broker.network.slices import SLICE_BYTES
from headrace.log.appending import checked_batch, record_count_of, takes_long
from headrace.log.early_write import LARGE_BATCH_BYTES, begin_early_write
from headrace.log.partition_log import PartitionLog
from headrace.protocol.errors import (
    ErrorCode,
    InvalidRecord,
    InvalidTopic,
    KafkaError,
    StorageError,
    TransactionalIdAuthorizationFailed,
    UnsupportedCompressionType,
    error_code_of,
)
from headrace.protocol.records import (
    ATTRIBUTES_LOW_BYTE_AT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    Buffer,
    Codec,
    size_of_batch,
)
from headrace.replication.partition import Partition
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.committed import CommitWaits
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.coordinators.transactional_produce import RefusedPartitions
    from headrace.broker.current_leaders import CurrentLeaders
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.metrics.counters import Metrics, TopicStats
    from headrace.broker.replicas.followers import Followers
    from headrace.broker.services import ReadRecords
    from headrace.broker.thread_pool import RunBlocking
    from headrace.log.config import LogConfig
    from headrace.log.early_write import EarlyWrite
    from headrace.replication.partitions import Partitions
    from headrace.runtime.purgatory import Purgatory

_TOPIC_ID_SINCE = 13
_ZSTD_SINCE = 7


async def handle(
    request: Request,
    authorizer: Authorizer,
    metadata: MetadataCache,
    partitions: Partitions,
    metrics: Metrics,
    delayed_fetch: Purgatory[tuple[str, int]],
    run_blocking: RunBlocking,
    read_records: ReadRecords,
    transactions: TransactionService,
    followers: Followers,
    commit_waits: CommitWaits,
    current_leaders: CurrentLeaders,
) -> Reply:
    body, version = request.body, request.version
    acks: int = body.acks
    if acks not in (-1, 0, 1):
        return _refuse_all(body, version, ErrorCode.invalid_required_acks)
    may_write = allowed_topics(authorizer, request.connection, AclOperation.WRITE)
    refused: RefusedPartitions | None = None
    if body.transactional_id is not None:
        if authorizer.is_allowed(
            request.connection, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id
        ):
            refused = await transactions.refused_partitions(body, version, may_write)
        elif acks != 0 and _has_transactional(body):
            return _refuse_all(body, version, ErrorCode.transactional_id_authorization_failed)
    appends = _Appends(
        version, acks, refused, may_write, partitions, metrics, delayed_fetch, run_blocking, read_records
    )
    responses: list[dict[str, Any]] = []
    batches = _batches(metadata, body, version, responses)
    if request.has_few_elements and request.size_bytes <= SLICE_BYTES:
        for answers, name, data in batches:
            answers.append(appends.append(name, data) or await appends.append_later(name, data, request))
    else:
        async for answers, name, data in request.slices.over(batches, _size_bytes):
            answers.append(appends.append(name, data) or await appends.append_later(name, data, request))
    for log in appends.unflushed:
        await run_blocking(request.on_thread, log.flush)
    if appends.uncommitted:
        followers.serve_woken()
        await appends.commit(commit_waits, milliseconds(body.timeout))
    if acks == 0:
        if appends.has_failed:
            # The client asked for no answers. The closed connection tells it of the error, as in Kafka.
            request.connection.abort("a Produce with acks=0 failed")
        return None
    reply: dict[str, Any] = {"responses": responses}
    if appends.has_failed:
        current_leaders.add_to(reply, request)
    return reply


def _batches(
    metadata: MetadataCache, body: Any, version: int, responses: list[dict[str, Any]]
) -> Iterator[tuple[list[dict[str, Any]], str | None, Any]]:
    """Yields each batch with its topic's name and the list for its answer. Adds these lists to the responses."""
    for topic in body.topic_data:
        answers: list[dict[str, Any]] = []
        if version >= _TOPIC_ID_SINCE:
            known = metadata.get_by_id(topic.topic_id) if topic.topic_id else None
            name = known.name if known else None
            responses.append({"topic_id": topic.topic_id, "partition_responses": answers})
        else:
            name = topic.name
            responses.append({"name": name, "partition_responses": answers})
        for data in topic.partition_data:
            yield answers, name, data


def _size_bytes(batch: tuple[list[dict[str, Any]], str | None, Any]) -> int:
    return len(batch[2].records or b"")


class _Uncommitted(NamedTuple):
    """An append that is not committed yet, with its answer."""

    partition: Partition
    end_offset: int
    answer: dict[str, Any]


class _Appends:
    """Appends the batches of one request, and collects which appends still have to be flushed or committed."""

    __slots__ = (
        "_acks",
        "_delayed_fetch",
        "_may_write",
        "_partitions",
        "_read_records",
        "_refused",
        "_run_blocking",
        "_stats_by_topic",
        "_version",
        "has_failed",
        "uncommitted",
        "unflushed",
    )

    def __init__(
        self,
        version: int,
        acks: int,
        refused: RefusedPartitions | None,
        may_write: Callable[[str], bool],
        partitions: Partitions,
        metrics: Metrics,
        delayed_fetch: Purgatory[tuple[str, int]],
        run_blocking: RunBlocking,
        read_records: ReadRecords,
    ) -> None:
        self._version = version
        self._acks = acks
        #: Partitions that a transactional batch may not be written to; None if the client may not write transactional
        #: batches at all.
        self._refused = refused
        self._may_write = may_write
        self._partitions = partitions
        self._stats_by_topic = metrics.by_topic
        self._delayed_fetch = delayed_fetch
        self._run_blocking = run_blocking
        self._read_records = read_records
        self.has_failed = False
        self.unflushed: list[PartitionLog] = []
        self.uncommitted: list[_Uncommitted] = []

    async def append_later(self, name: str | None, data: Any, request: Request) -> dict[str, Any]:
        """Appends a batch whose check or write takes long, or that has to wait. Other requests do not wait for it."""
        assert name is not None
        answer: dict[str, Any] | None = None
        while answer is None:
            log = self._partitions.leader(name, data.index).log  # :meth:`append` has just found it
            if log.early_write is not None:
                await _end_of(log.early_write)
                answer = self.append(name, data)
            elif len(data.records) > LARGE_BATCH_BYTES:
                answer = await self._append_early(log, name, data, request)
            else:
                check = _check_of(log, data.records)
                count = record_count_of(data.records)
                answer = self.append(name, data, await self._read_records(count, request.on_thread, check))
        return answer

    async def _append_early(self, log: PartitionLog, name: str, data: Any, request: Request) -> dict[str, Any] | None:
        check = _check_of(log, data.records)
        try:
            early = begin_early_write(log, data.records)
        except StorageError as error:
            return self.append(name, data, error)
        try:
            if log.config.reads_records:
                await self._read_records(record_count_of(data.records), request.on_thread, early.run, check)
            else:
                await self._run_blocking(request.on_thread, early.run, check)
            return self.append(name, data, early.checked)
        finally:
            early.give_up()

    def append(self, name: str | None, data: Any, checked: Buffer | KafkaError | None = None) -> dict[str, Any] | None:
        """Appends a batch, and returns the answer of its partition; None if :meth:`append_later` has to append it.

        :param checked: what the check of the records has returned, if it ran before.
        """
        index: int = data.index
        if name is None:
            self.has_failed = True
            return _failure(index, ErrorCode.unknown_topic_id, None)
        if not self._may_write(name):
            self.has_failed = True
            code = ErrorCode.topic_authorization_failed
            if self._refused is None and _is_transactional(data.records):
                code = ErrorCode.transactional_id_authorization_failed
            return _failure(index, code, None)
        stats = self._stats_by_topic[name]
        stats.produce_requests += 1
        try:
            records: bytes | None = data.records
            _check(records, self._version, name)
            assert records is not None
            if records[ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL:
                _check_transaction(self._refused, name, index)
            partition = self._partitions.leader(name, index)
            if self._acks < 0:
                partition.check_enough_replicas()
            log = partition.log
            early = log.early_write
            if (early is not None and early.batch is not records) or (
                checked is None
                and (len(records) > LARGE_BATCH_BYTES or (log.config.reads_records and takes_long(records)))
            ):
                stats.produce_requests -= 1  # the next call counts it again
                return None
            if isinstance(checked, KafkaError):  # not raised, because a frame and its error would form a cycle
                return self._failed(stats, index, checked)
            appended = partition.append(records, checked=checked)
        except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
            return self._failed(stats, index, error)
        if not appended.is_duplicate:
            stats.bytes_in += len(records)
            stats.messages_in += appended.last_offset - appended.base_offset + 1
            if appended.must_flush:
                self.unflushed.append(partition.log)
            if not partition.is_replicated:  # a replicated partition completes the waiting Fetch requests itself
                self._delayed_fetch.check_and_complete((name, index))
        answer = {
            "index": index,
            "base_offset": appended.base_offset,
            "log_append_time": appended.log_append_time_ms,
            "log_start_offset": appended.log_start_offset,
            "record_errors": (),
        }
        if self._acks < 0 and appended.last_offset >= partition.log.high_watermark:
            self.uncommitted.append(_Uncommitted(partition, appended.last_offset + 1, answer))
        return answer

    def _failed(self, stats: TopicStats, index: int, error: Exception) -> dict[str, Any]:
        stats.failed_produce_requests += 1
        self.has_failed = True
        return _append_failure(index, error)

    async def commit(self, commit_waits: CommitWaits, timeout_ms: int) -> None:
        """Waits until the appends are committed, and changes the answers of the others."""
        waits = [(one.partition, one.end_offset) for one in self.uncommitted]
        for one, error in zip(self.uncommitted, await commit_waits.outcomes(waits, timeout_ms), strict=True):
            if error is not None:
                self.has_failed = True
                one.answer.update(_failure(one.answer["index"], error.code, str(error)))


def _check_of(log: PartitionLog, records: Buffer) -> Callable[[], Buffer | KafkaError]:
    """The check of a batch, to be called on another thread."""
    return partial(_checked, records, log.config, log.log_dir.clock.wall_ms())


def _end_of(early_write: EarlyWrite) -> asyncio.Future[None]:
    """Is done when an early write of another request has ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    early_write.call_at_end(lambda: loop.call_soon_threadsafe(_set_done, ended))
    return ended


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _checked(records: Buffer, config: LogConfig, now_ms: int) -> Buffer | KafkaError:
    """Returns an error instead of raising it, so that the other checks of the batch come first.

    The error has no traceback: its frames would keep the decompressed records until the garbage collector runs.
    """
    try:
        return checked_batch(records, config, now_ms)
    except KafkaError as error:
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)


def _has_transactional(body: Any) -> bool:
    """Returns whether a batch of the request is transactional. The flag of the batch counts, whatever the request
    says."""
    return any(_is_transactional(data.records) for topic in body.topic_data for data in topic.partition_data)


def _is_transactional(records: bytes | None) -> bool:
    return (
        records is not None
        and len(records) > ATTRIBUTES_LOW_BYTE_AT
        and records[ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL != 0
    )


def _append_failure(index: int, error: Exception) -> dict[str, Any]:
    failure = _failure(index, error_code_of(error), str(error) if isinstance(error, KafkaError) else None)
    if isinstance(error, KafkaError) and error.record_errors:
        failure["record_errors"] = [
            {"batch_index": number, "batch_index_error_message": why} for number, why in error.record_errors
        ]
    return failure


def _check(records: bytes | None, version: int, topic: str) -> None:
    """Checks what the log does not check: rules for batches in a Produce request."""
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"clients may not write to the internal topic {topic}")
    if not records or len(records) < HEADER_BYTES:
        raise InvalidRecord("a Produce request must have exactly one record batch per partition")
    if records[MAGIC_AT] != MAGIC:
        raise InvalidRecord(f"a record batch has magic {records[MAGIC_AT]}; only magic {MAGIC} is supported")
    if LENGTH_PREFIX_BYTES <= size_of_batch(records) < len(records):  # the log refuses a negative length
        raise InvalidRecord("a Produce request must have exactly one record batch per partition")
    flags = records[ATTRIBUTES_LOW_BYTE_AT]
    if flags & 0x07 == Codec.zstd and version < _ZSTD_SINCE:
        raise UnsupportedCompressionType(f"zstd is allowed since Produce v{_ZSTD_SINCE}; this request is v{version}")


def _check_transaction(refused: RefusedPartitions | None, topic: str, index: int) -> None:
    if refused is None:
        raise TransactionalIdAuthorizationFailed("a transactional batch needs a transactional id in its request")
    if (topic, index) in refused:
        raise refused[topic, index]


def _failure(index: int, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"index": index, "error_code": code, "base_offset": -1, "record_errors": (), "error_message": message}


def _refuse_all(body: Any, version: int, code: ErrorCode) -> Reply:
    return {
        "responses": [
            {
                **({"topic_id": topic.topic_id} if version >= _TOPIC_ID_SINCE else {"name": topic.name}),
                "partition_responses": [_failure(data.index, code, None) for data in topic.partition_data],
            }
            for topic in body.topic_data
        ]
    }
