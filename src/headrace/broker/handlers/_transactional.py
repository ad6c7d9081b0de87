"""What the handlers of transactional requests share."""

from __future__ import annotations

from headrace.protocol.errors import ErrorCode, error_code_of

#: Since these versions a client knows PRODUCER_FENCED; before, it was told INVALID_PRODUCER_EPOCH (KIP-588).
KNOWS_FENCED = 2


def code_of(error: Exception, *, knows_fenced: bool) -> ErrorCode:
    code = error_code_of(error)
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.kafka_storage_error:
        return ErrorCode.not_coordinator  # its state cannot be written: a client looks for the coordinator anew
    return code
