"""Decides what happens to a batch after the broker's answer: a table, and no I/O.

::

    none, duplicate_sequence_number          delivered (the broker has a duplicate already; its offset is not known)
    message_too_large, several records       split, and sent again at once
    out_of_order_sequence_number,            first in flight: new epoch, and sent again (KIP-360). In a transaction the
    unknown_producer_id                      batch fails, because only an abort helps. Behind others: sent again later
    retriable, and no connection             sent again after a pause, while there are retries and time
    any other                                failed
"""

from enum import Enum, auto
from typing import Any

from headrace.client.errors import HeadraceError, error_for, is_retriable
from headrace.client.producer.batch import ProducerBatch
from headrace.protocol.kio import ErrorCode


class Outcome(Enum):
    DELIVERED = auto()
    SPLIT = auto()
    RETRY = auto()
    #: Sent again with new sequence numbers, under the next epoch.
    RENUMBER = auto()
    FAILED = auto()


_DELIVERED = frozenset({ErrorCode.none, ErrorCode.duplicate_sequence_number})
_WRONG_SEQUENCE = frozenset({ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id})
_TOO_LARGE = frozenset({ErrorCode.message_too_large, ErrorCode.record_list_too_large})
#: Another broker leads the partition, or this broker does not know the partition: metadata must be refreshed.
WRONG_LEADER = frozenset(
    {
        ErrorCode.not_leader_or_follower, ErrorCode.leader_not_available, ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id, ErrorCode.fenced_leader_epoch, ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error, ErrorCode.network_exception, ErrorCode.listener_not_found,
    }
)  # fmt: skip


def outcome_of(
    code: ErrorCode, batch: ProducerBatch, *, is_first_in_flight: bool, is_transactional: bool, retries: int
) -> Outcome:
    """Decides what happens to a batch, by the table above."""
    if code in _DELIVERED:
        return Outcome.DELIVERED
    if batch.is_done:
        return Outcome.FAILED  # It has expired meanwhile.
    if code in _TOO_LARGE and batch.record_count > 1:
        return Outcome.SPLIT
    if batch.attempts >= retries:
        return Outcome.FAILED
    if code in _WRONG_SEQUENCE and batch.has_sequence:
        if not is_first_in_flight:
            return Outcome.RETRY
        return Outcome.FAILED if is_transactional else Outcome.RENUMBER
    return Outcome.RETRY if is_retriable(code) else Outcome.FAILED


def failure_of(code: ErrorCode, batch: ProducerBatch, message: str | None) -> HeadraceError:
    """Makes the error that users of a batch get for a broker's code."""
    detail = f": {message}" if message else ""
    hint = _HINTS.get(code, "")
    attempts = f" in {batch.attempts + 1} attempts" if batch.attempts else ""
    rejected = f"{batch.topic}-{batch.partition} did not accept {records_text(batch)}"
    return error_for(code, f"{rejected}{attempts}{detail}{hint}")


def records_text(batch: ProducerBatch) -> str:
    """Says how many records a batch has, for error messages."""
    count = batch.record_count
    return "a record" if count == 1 else f"{count} records"


def broker_message(answer: Any) -> str | None:
    """Returns the error text in the broker's answer for a partition; version 8 and higher have one."""
    parts = [getattr(answer, "error_message", None)]
    parts += [
        f"record {int(error.batch_index)}: {error.batch_index_error_message}"
        for error in getattr(answer, "record_errors", ())
    ]
    return "; ".join(part for part in parts if part) or None


_FENCED = (
    "; another producer with the same transactional.id has taken over, or the transaction lasted longer than "
    "transaction.timeout.ms: close this producer and make another"
)
_HINTS = {
    ErrorCode.message_too_large: "; the topic's max.message.bytes is less than its size",
    ErrorCode.topic_authorization_failed: "; the broker's rules do not allow this client to write there",
    ErrorCode.not_enough_replicas: "; fewer replicas are in sync than the topic's min.insync.replicas",
    ErrorCode.producer_fenced: _FENCED,
    ErrorCode.invalid_producer_epoch: _FENCED,
}
