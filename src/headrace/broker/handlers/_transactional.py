"""The error codes of transactional requests."""

from __future__ import annotations

from headrace.protocol.errors import ErrorCode, error_code_of

#: Clients know PRODUCER_FENCED since this version. Older clients get INVALID_PRODUCER_EPOCH (KIP-588).
FENCED_SINCE = 2


def code_of(error: Exception, *, knows_fenced: bool) -> ErrorCode:
    """Returns the error code for a client.

    :param knows_fenced: whether the client knows PRODUCER_FENCED.
    """
    code = error_code_of(error)
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.kafka_storage_error:
        return (
            ErrorCode.not_coordinator
        )  # the coordinator cannot write its state; this code makes the client look for the coordinator again
    return code
