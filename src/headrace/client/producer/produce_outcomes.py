"""What becomes of a batch, by the broker's answer: a table, and no I/O.

::

    none, duplicate_sequence_number          delivered (a duplicate is there already; its offset is not known)
    message_too_large, several records       split and sent again at once
    out_of_order_sequence_number,            the first in flight: a new epoch, and again (KIP-360); in a transaction it
    unknown_producer_id                      fails, since only aborting helps. One behind others: again after them
    retriable, and no connection             again after a pause, while there are retries and time
    any other                                failed
"""

from enum import Enum, auto

from headrace.client.errors import HeadraceError, error_for, is_retriable
from headrace.client.producer.batch import ProducerBatch
from headrace.protocol.kio import ErrorCode


class Outcome(Enum):
    DELIVERED = auto()
    SPLIT = auto()
    RETRY = auto()
    RENUMBER = auto()
    FAILED = auto()


_DELIVERED = frozenset({ErrorCode.none, ErrorCode.duplicate_sequence_number})
_OUT_OF_NUMBER = frozenset({ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id})
_TOO_LARGE = frozenset({ErrorCode.message_too_large, ErrorCode.record_list_too_large})
#: Who leads the partition is another broker, or not known to this one: metadata is to be asked for again.
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
    if code in _DELIVERED:
        return Outcome.DELIVERED
    if batch.is_done:
        return Outcome.FAILED  # It has expired meanwhile.
    if code in _TOO_LARGE and batch.record_count > 1:
        return Outcome.SPLIT
    if batch.attempts >= retries:
        return Outcome.FAILED
    if code in _OUT_OF_NUMBER and batch.has_sequence:
        if not is_first_in_flight:
            return Outcome.RETRY
        return Outcome.FAILED if is_transactional else Outcome.RENUMBER
    return Outcome.RETRY if is_retriable(code) else Outcome.FAILED


def failure_of(code: ErrorCode, batch: ProducerBatch, message: str | None) -> HeadraceError:
    """The error that the user of a batch gets for a broker's code."""
    place = f"{batch.topic}-{batch.partition}"
    count = batch.record_count
    records = "a record" if count == 1 else f"{count} records"
    said = f": {message}" if message else ""
    hint = _HINTS.get(code, "")
    tries = f", tried {batch.attempts + 1} times" if batch.attempts else ""
    return error_for(code, f"{place} did not take {records}{tries}{said}{hint}")


_FENCED = (
    "; another producer with the same transactional.id has taken over, or the transaction lasted longer than "
    "transaction.timeout.ms: close this producer and make another"
)
_HINTS = {
    ErrorCode.message_too_large: "; the topic's max.message.bytes is less than its size",
    ErrorCode.topic_authorization_failed: "; the broker's rules do not let this client write there",
    ErrorCode.not_enough_replicas: "; fewer replicas are in sync than the topic's min.insync.replicas",
    ErrorCode.producer_fenced: _FENCED,
    ErrorCode.invalid_producer_epoch: _FENCED,
}
