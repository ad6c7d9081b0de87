"""The exceptions of the clients. All are subclasses of :class:`HeadraceError`.

A failure in the client has a class of its own. An error code from a broker is a :class:`BrokerError`, with a subclass
for codes that a program may want to handle; :func:`error_for` chooses the class. A message says what failed, what was
tried and, if possible, what to do next.
"""

from headrace.peer_log import one_line

# The aliases export these names; all other names are exported anyway.
from headrace.protocol.errors import HeadraceError as HeadraceError
from headrace.protocol.kio import ErrorCode as ErrorCode
from headrace.protocol.wire.client_codec import BadResponse as BadResponse
from headrace.protocol.wire.client_codec import NotSendable as NotSendable

_MAX_MESSAGE_CHARACTERS = 10_000


class ClientClosed(HeadraceError):
    """The client was used after it was closed."""


class KafkaTimeout(HeadraceError, TimeoutError):
    """A call did not finish in time. The broker may or may not have done what was asked."""


class BrokerUnreachable(HeadraceError, ConnectionError):
    """There is no connection to a broker, or the connection ended before the answer."""


class AuthenticationFailed(HeadraceError):
    """Client and broker could not agree who they are. The same attempt would fail again, so no client repeats it."""


class TlsHandshakeFailed(AuthenticationFailed):
    """One side did not accept the other side's certificate, TLS version or ciphers."""


class SaslAuthenticationFailed(AuthenticationFailed):
    """The broker rejected the login, or the broker itself failed the checks of the login."""


class UnsupportedMechanism(SaslAuthenticationFailed):
    """The broker's listener does not offer ``sasl.mechanism``, or has no SASL at all."""


class BufferExhausted(KafkaTimeout):
    """The producer's ``buffer.memory`` stayed full for ``max.block.ms``."""


class TransactionError(HeadraceError):
    """The state of the transaction does not allow the call, or the transaction of a record was aborted."""


class BrokerError(HeadraceError):
    """A broker answered with an error; ``code`` is its error code."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        self.code = code
        text = one_line(message, _MAX_MESSAGE_CHARACTERS)  # a broker must not write lines into logs and terminals
        super().__init__(f"{text} ({code.name})" if text else _meaning(code))

    @property
    def is_retriable(self) -> bool:
        return is_retriable(self.code)


class RecordTooLarge(BrokerError):
    """A record or a batch is larger than the producer (``max.request.size``) or the topic allows."""

    def __init__(self, code: ErrorCode = ErrorCode.message_too_large, message: str = "") -> None:
        super().__init__(code, message)


class UnknownTopic(BrokerError):
    """The topic or the partition does not exist."""

    def __init__(self, code: ErrorCode = ErrorCode.unknown_topic_or_partition, message: str = "") -> None:
        super().__init__(code, message)


class InvalidTopic(BrokerError):
    """The name is not a valid topic name."""


class TopicExists(BrokerError):
    """A topic with this name exists already."""


class NotAuthorized(BrokerError):
    """The broker's rules do not allow this client to do that."""


class ProducerFenced(BrokerError):
    """Another producer with the same transactional id has taken over. This producer can only be closed."""


class UnsupportedByBroker(BrokerError):
    """The broker supports no version of a request that this client supports."""

    def __init__(self, code: ErrorCode = ErrorCode.unsupported_version, message: str = "") -> None:
        super().__init__(code, message)


class QuotaExceeded(BrokerError):
    """The client changes topics faster than its quota ``controller_mutation_rate`` allows."""

    #: How long the broker wants the client to wait, as of its answer.
    throttle_time_ms = 0


class GroupNotEmpty(BrokerError):
    """The group still has members."""


class UnknownGroup(BrokerError):
    """The group does not exist."""


class MemberFenced(BrokerError):
    """The group has removed this member, and may have given its partitions to other members."""


class OffsetOutOfRange(BrokerError):
    """The partition has no record at the offset, and ``auto.offset.reset`` is none."""


class NoCommittedOffset(HeadraceError):
    """The group has no committed offset for a partition, and ``auto.offset.reset`` is none."""


class NotDeserialized(HeadraceError):
    """The key or value deserializer failed on a record. The position stays before the record."""


class NotAssigned(HeadraceError, KeyError):
    """The partition is not assigned to this consumer."""

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
    ErrorCode.throttling_quota_exceeded: QuotaExceeded,
    ErrorCode.non_empty_group: GroupNotEmpty,
    ErrorCode.group_id_not_found: UnknownGroup,
    ErrorCode.fenced_instance_id: MemberFenced,
    ErrorCode.fenced_member_epoch: MemberFenced,
    ErrorCode.unknown_member_id: MemberFenced,
    ErrorCode.illegal_generation: MemberFenced,
    ErrorCode.offset_out_of_range: OffsetOutOfRange,
}


def error_for(code: ErrorCode | int, message: str | None = "") -> BrokerError:
    """Makes the exception for an error code. ``message`` says what was asked, or is the broker's own message."""
    code = ErrorCode(code)
    assert code is not ErrorCode.none, "no error"
    return _CLASSES.get(code, BrokerError)(code, message or "")


def is_retriable(code: ErrorCode | int) -> bool:
    """Whether the same request may succeed later, perhaps at another broker."""
    return bool(ErrorCode(code).retriable)


def _meaning(code: ErrorCode) -> str:
    return f"the broker answered {code.name} ({code.value})"
