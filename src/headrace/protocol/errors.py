"""Maps exceptions to Kafka's error codes. This is the only place that does so.

The core raises exceptions; :func:`error_code_of` gives the code for the response. Each class is one code of the
protocol, so a reader of ``raise OffsetOutOfRange(...)`` knows what the client will get. An exception that is not a
:class:`KafkaError` is a fault of our code or of the disk, and never of the peer.
"""

from collections.abc import Callable
from logging import getLogger
from typing import ClassVar

from headrace.protocol.kio import ErrorCode

__all__ = ["CodeForErrors", "ErrorCode", "HeadraceError", "KafkaError", "code_for_errors", "error_code_of"]

logger = getLogger(__name__)


class HeadraceError(Exception):
    """The base of all exceptions that Headrace's clients raise."""


class KafkaError(Exception):
    """A request of a peer cannot be done. ``code`` tells the peer why."""

    code: ClassVar[ErrorCode]
    #: The indexes and errors of the wrong records of a rejected batch; empty if the whole batch is wrong (KIP-467).
    record_errors: tuple[tuple[int, str], ...] = ()

    def __init_subclass__(cls, code: ErrorCode, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.code = code


class UnknownServerError(KafkaError, code=ErrorCode.unknown_server_error): ...


class OffsetOutOfRange(KafkaError, code=ErrorCode.offset_out_of_range): ...


class CorruptMessage(KafkaError, code=ErrorCode.corrupt_message): ...


class UnknownTopicOrPartition(KafkaError, code=ErrorCode.unknown_topic_or_partition): ...


class NotLeaderOrFollower(KafkaError, code=ErrorCode.not_leader_or_follower): ...


class RequestTimedOut(KafkaError, code=ErrorCode.request_timed_out): ...


class BrokerNotAvailable(KafkaError, code=ErrorCode.broker_not_available): ...


class ReplicaNotAvailable(KafkaError, code=ErrorCode.replica_not_available): ...


class MessageTooLarge(KafkaError, code=ErrorCode.message_too_large): ...


class CoordinatorLoadInProgress(KafkaError, code=ErrorCode.coordinator_load_in_progress): ...


class CoordinatorNotAvailable(KafkaError, code=ErrorCode.coordinator_not_available): ...


class NotCoordinator(KafkaError, code=ErrorCode.not_coordinator): ...


class InvalidTopic(KafkaError, code=ErrorCode.invalid_topic_exception): ...


class RecordListTooLarge(KafkaError, code=ErrorCode.record_list_too_large): ...


class NotEnoughReplicas(KafkaError, code=ErrorCode.not_enough_replicas): ...


class NotEnoughReplicasAfterAppend(KafkaError, code=ErrorCode.not_enough_replicas_after_append): ...


class IllegalGeneration(KafkaError, code=ErrorCode.illegal_generation): ...


class InconsistentGroupProtocol(KafkaError, code=ErrorCode.inconsistent_group_protocol): ...


class InvalidGroupId(KafkaError, code=ErrorCode.invalid_group_id): ...


class UnknownMemberId(KafkaError, code=ErrorCode.unknown_member_id): ...


class InvalidSessionTimeout(KafkaError, code=ErrorCode.invalid_session_timeout): ...


class RebalanceInProgress(KafkaError, code=ErrorCode.rebalance_in_progress): ...


class InvalidTimestamp(KafkaError, code=ErrorCode.invalid_timestamp): ...


class UnsupportedVersion(KafkaError, code=ErrorCode.unsupported_version): ...


class TopicAlreadyExists(KafkaError, code=ErrorCode.topic_already_exists): ...


class InvalidPartitions(KafkaError, code=ErrorCode.invalid_partitions): ...


class InvalidReplicationFactor(KafkaError, code=ErrorCode.invalid_replication_factor): ...


class InvalidReplicaAssignment(KafkaError, code=ErrorCode.invalid_replica_assignment): ...


class InvalidConfig(KafkaError, code=ErrorCode.invalid_config): ...


class InvalidRequest(KafkaError, code=ErrorCode.invalid_request): ...


class PolicyViolation(KafkaError, code=ErrorCode.policy_violation): ...


class OutOfOrderSequence(KafkaError, code=ErrorCode.out_of_order_sequence_number): ...


class InvalidProducerEpoch(KafkaError, code=ErrorCode.invalid_producer_epoch): ...


class InvalidTxnState(KafkaError, code=ErrorCode.invalid_txn_state): ...


class InvalidProducerIdMapping(KafkaError, code=ErrorCode.invalid_producer_id_mapping): ...


class InvalidTransactionTimeout(KafkaError, code=ErrorCode.invalid_transaction_timeout): ...


class ConcurrentTransactions(KafkaError, code=ErrorCode.concurrent_transactions): ...


class TransactionCoordinatorFenced(KafkaError, code=ErrorCode.transaction_coordinator_fenced): ...


class TopicAuthorizationFailed(KafkaError, code=ErrorCode.topic_authorization_failed): ...


class GroupAuthorizationFailed(KafkaError, code=ErrorCode.group_authorization_failed): ...


class ClusterAuthorizationFailed(KafkaError, code=ErrorCode.cluster_authorization_failed): ...


class SecurityDisabled(KafkaError, code=ErrorCode.security_disabled): ...


class TransactionalIdAuthorizationFailed(KafkaError, code=ErrorCode.transactional_id_authorization_failed): ...


class StorageError(KafkaError, code=ErrorCode.kafka_storage_error): ...


class LogDirNotFound(KafkaError, code=ErrorCode.log_dir_not_found): ...


class NonEmptyGroup(KafkaError, code=ErrorCode.non_empty_group): ...


class GroupIdNotFound(KafkaError, code=ErrorCode.group_id_not_found): ...


class FetchSessionIdNotFound(KafkaError, code=ErrorCode.fetch_session_id_not_found): ...


class InvalidFetchSessionEpoch(KafkaError, code=ErrorCode.invalid_fetch_session_epoch): ...


class FetchSessionTopicIdError(KafkaError, code=ErrorCode.fetch_session_topic_id_error): ...


class TopicDeletionDisabled(KafkaError, code=ErrorCode.topic_deletion_disabled): ...


class FencedLeaderEpoch(KafkaError, code=ErrorCode.fenced_leader_epoch): ...


class OffsetNotAvailable(KafkaError, code=ErrorCode.offset_not_available): ...


class LeaderNotAvailable(KafkaError, code=ErrorCode.leader_not_available): ...


class UnknownLeaderEpoch(KafkaError, code=ErrorCode.unknown_leader_epoch): ...


class UnsupportedCompressionType(KafkaError, code=ErrorCode.unsupported_compression_type): ...


class GroupMaxSizeReached(KafkaError, code=ErrorCode.group_max_size_reached): ...


class FencedInstanceId(KafkaError, code=ErrorCode.fenced_instance_id): ...


class InvalidRecord(KafkaError, code=ErrorCode.invalid_record): ...


class ProducerFenced(KafkaError, code=ErrorCode.producer_fenced): ...


class UnknownTopicId(KafkaError, code=ErrorCode.unknown_topic_id): ...


class InconsistentTopicId(KafkaError, code=ErrorCode.inconsistent_topic_id): ...


class TransactionalIdNotFound(KafkaError, code=ErrorCode.transactional_id_not_found): ...


class TransactionAbortable(KafkaError, code=ErrorCode.transaction_abortable): ...


class DelegationTokenAuthDisabled(KafkaError, code=ErrorCode.delegation_token_auth_disabled): ...


class DelegationTokenNotFound(KafkaError, code=ErrorCode.delegation_token_not_found): ...


class DelegationTokenOwnerMismatch(KafkaError, code=ErrorCode.delegation_token_owner_mismatch): ...


class DelegationTokenRequestNotAllowed(KafkaError, code=ErrorCode.delegation_token_request_not_allowed): ...


class DelegationTokenAuthorizationFailed(KafkaError, code=ErrorCode.delegation_token_authorization_failed): ...


class DelegationTokenExpired(KafkaError, code=ErrorCode.delegation_token_expired): ...


class InvalidPrincipalType(KafkaError, code=ErrorCode.invalid_principal_type): ...


class FencedMemberEpoch(KafkaError, code=ErrorCode.fenced_member_epoch): ...


class UnreleasedInstanceId(KafkaError, code=ErrorCode.unreleased_instance_id): ...


class UnsupportedAssignor(KafkaError, code=ErrorCode.unsupported_assignor): ...


class StaleMemberEpoch(KafkaError, code=ErrorCode.stale_member_epoch): ...


class InvalidRegularExpression(KafkaError, code=ErrorCode.invalid_regular_expression): ...


class StaleControllerEpoch(KafkaError, code=ErrorCode.stale_controller_epoch): ...


class StaleBrokerEpoch(KafkaError, code=ErrorCode.stale_broker_epoch): ...


class NotController(KafkaError, code=ErrorCode.not_controller): ...


class ReassignmentInProgress(KafkaError, code=ErrorCode.reassignment_in_progress): ...


class NoReassignmentInProgress(KafkaError, code=ErrorCode.no_reassignment_in_progress): ...


class PreferredLeaderNotAvailable(KafkaError, code=ErrorCode.preferred_leader_not_available): ...


class EligibleLeadersNotAvailable(KafkaError, code=ErrorCode.eligible_leaders_not_available): ...


class ElectionNotNeeded(KafkaError, code=ErrorCode.election_not_needed): ...


class UnsupportedSaslMechanism(KafkaError, code=ErrorCode.unsupported_sasl_mechanism): ...


class SaslAuthenticationFailed(KafkaError, code=ErrorCode.sasl_authentication_failed): ...


class UnacceptableCredential(KafkaError, code=ErrorCode.unacceptable_credential): ...


class DuplicateResource(KafkaError, code=ErrorCode.duplicate_resource): ...


class InvalidUpdateVersion(KafkaError, code=ErrorCode.invalid_update_version): ...


class ThrottlingQuotaExceeded(KafkaError, code=ErrorCode.throttling_quota_exceeded): ...


class UnknownSubscriptionId(KafkaError, code=ErrorCode.unknown_subscription_id): ...


class TelemetryTooLarge(KafkaError, code=ErrorCode.telemetry_too_large): ...


class ResourceNotFound(KafkaError, code=ErrorCode.resource_not_found): ...


def error_code_of(error: Exception) -> ErrorCode:
    """The code that a peer gets for an exception. Exceptions that are not the peer's fault are logged."""
    if isinstance(error, KafkaError):
        return error.code
    if isinstance(error, OSError):
        logger.error("a file operation failed: %s", error)
        return ErrorCode.kafka_storage_error
    logger.error("a request failed with an unexpected error", exc_info=error)
    return ErrorCode.unknown_server_error


class CodeForErrors:
    """A ``with`` block that yields an answer. If the block raises, ``error_code`` and ``error_message`` of the answer
    are set.

    It is no generator with ``contextmanager``: since Python 3.12 each exception that passes such a generator leaves a
    reference cycle. A request with thousands of refused elements then stopped the loop for the garbage collector.

    :param fields: of the answer.
    :param refused: is called with each KafkaError.
    """

    __slots__ = ("_answer", "_refused")

    def __init__(self, fields: dict[str, object], refused: Callable[[KafkaError], None] | None = None) -> None:
        self._answer, self._refused = fields, refused

    def __enter__(self) -> dict[str, object]:
        return self._answer

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._answer["error_code"] = error_code_of(error)
        self._answer["error_message"] = str(error) if isinstance(error, KafkaError) else None
        if isinstance(error, KafkaError) and self._refused is not None:
            self._refused(error)
        return True


def code_for_errors(**fields: object) -> CodeForErrors:
    """Returns a ``with`` block around the work for an answer with these fields."""
    return CodeForErrors(fields)
