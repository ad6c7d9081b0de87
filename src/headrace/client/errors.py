"""What a user of the clients can catch. All are :class:`HeadraceError`.

A failure on our side of the wire has a class of its own. A code that a broker answered with is a :class:`BrokerError`,
with a subclass where a program would act on it; :func:`error_for` picks the class. A message says what failed, what
was tried and, where there is something, what to do.
"""

# The aliases export these names; all other names are exported anyway.
from headrace.protocol.errors import HeadraceError as HeadraceError
from headrace.protocol.kio import ErrorCode as ErrorCode
from headrace.protocol.wire.client_codec import BadResponse as BadResponse
from headrace.protocol.wire.client_codec import NotSendable as NotSendable


class ClientClosed(HeadraceError):
    """The client was used after it was closed."""


class KafkaTimeout(HeadraceError, TimeoutError):
    """It was not done within its time. Whether a broker has done it meanwhile is not known."""


class BrokerUnreachable(HeadraceError, ConnectionError):
    """No connection, or it broke before the answer came."""


class BufferExhausted(KafkaTimeout):
    """The producer's ``buffer.memory`` stayed full for ``max.block.ms``."""


class TransactionError(HeadraceError):
    """The producer is not in a state for that call, or the transaction of a record was aborted."""


class BrokerError(HeadraceError):
    """A broker refused; ``code`` says why."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        self.code = code
        super().__init__(f"{message} ({code.name})" if message else _meaning(code))

    @property
    def is_retriable(self) -> bool:
        return is_retriable(self.code)


class RecordTooLarge(BrokerError):
    """A record or a batch is larger than the producer (``max.request.size``) or the topic takes."""

    def __init__(self, code: ErrorCode = ErrorCode.message_too_large, message: str = "") -> None:
        super().__init__(code, message)


class UnknownTopic(BrokerError):
    """There is no such topic or partition."""

    def __init__(self, code: ErrorCode = ErrorCode.unknown_topic_or_partition, message: str = "") -> None:
        super().__init__(code, message)


class InvalidTopic(BrokerError):
    """The name is no name of a topic."""


class TopicExists(BrokerError):
    """A topic of that name is there already."""


class NotAuthorized(BrokerError):
    """The broker's rules do not let this client do that."""


class ProducerFenced(BrokerError):
    """Another producer with the same transactional id has taken over; this one can only be closed."""


class UnsupportedByBroker(BrokerError):
    """The broker speaks no version of the request that we speak."""

    def __init__(self, code: ErrorCode = ErrorCode.unsupported_version, message: str = "") -> None:
        super().__init__(code, message)


class GroupNotEmpty(BrokerError):
    """The group still has members."""


class UnknownGroup(BrokerError):
    """There is no such group."""


class MemberFenced(BrokerError):
    """The group has gone on without this member."""


class OffsetOutOfRange(BrokerError):
    """The partition has no record at that offset, and no reset is set."""


class NoCommittedOffset(HeadraceError):
    """The group has committed nothing for a partition, and no reset is set."""


class NotDeserialized(HeadraceError):
    """The consumer's key or value deserializer failed on a record; the position stays before it."""


class NotAssigned(HeadraceError, KeyError):
    """The partition is not one of those that this consumer reads."""

    __str__ = Exception.__str__


_CLASSES: dict[ErrorCode, type[BrokerError]] = {
    ErrorCode.message_too_large: RecordTooLarge,
    ErrorCode.record_list_too_large: RecordTooLarge,
    ErrorCode.unknown_topic_or_partition: UnknownTopic,
    ErrorCode.unknown_topic_id: UnknownTopic,
    ErrorCode.invalid_topic_exception: InvalidTopic,
    ErrorCode.topic_already_exists: TopicExists,
    ErrorCode.topic_authorization_failed: NotAuthorized,
    ErrorCode.group_authorization_failed: NotAuthorized,
    ErrorCode.cluster_authorization_failed: NotAuthorized,
    ErrorCode.transactional_id_authorization_failed: NotAuthorized,
    ErrorCode.delegation_token_authorization_failed: NotAuthorized,
    ErrorCode.producer_fenced: ProducerFenced,
    ErrorCode.invalid_producer_epoch: ProducerFenced,
    ErrorCode.unsupported_version: UnsupportedByBroker,
    ErrorCode.non_empty_group: GroupNotEmpty,
    ErrorCode.group_id_not_found: UnknownGroup,
    ErrorCode.fenced_instance_id: MemberFenced,
    ErrorCode.fenced_member_epoch: MemberFenced,
    ErrorCode.unknown_member_id: MemberFenced,
    ErrorCode.illegal_generation: MemberFenced,
    ErrorCode.offset_out_of_range: OffsetOutOfRange,
}


def error_for(code: ErrorCode | int, message: str | None = "") -> BrokerError:
    """The exception for a code of an answer; ``message`` is what was asked, or what the broker said."""
    code = ErrorCode(code)
    assert code is not ErrorCode.none, "no error"
    return _CLASSES.get(code, BrokerError)(code, message or "")


def is_retriable(code: ErrorCode | int) -> bool:
    """Whether the same request may succeed later, perhaps at another broker."""
    return bool(ErrorCode(code).retriable)


def _meaning(code: ErrorCode) -> str:
    return f"the broker answered {code.name} ({code.value})"
