"""Turns a refused group request into its answer, and logs at debug level which check refused the request.

INVALID_REQUEST tells a client only that its request breaks a rule, and most clients stop on that code. The log line
names the rule, the group and the member, so that an operator can tell a client's mistake from the broker's.
"""

from __future__ import annotations

from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.peer_log import one_line
from headrace.protocol.errors import CodeForErrors, ErrorCode, KafkaError, error_code_of

if TYPE_CHECKING:
    from headrace.broker.network.request import Request

logger = getLogger(__name__)


def group_answer(request: Request, **fields: object) -> CodeForErrors:
    """Does what :func:`code_for_errors` does, for a group request."""
    return CodeForErrors(fields, partial(_log_refusal, request))


def group_error_code(request: Request, error: Exception) -> ErrorCode:
    """Does what :func:`error_code_of` does, for a group request."""
    if isinstance(error, KafkaError):
        _log_refusal(request, error)
    return error_code_of(error)


def _log_refusal(request: Request, error: KafkaError) -> None:
    if error.code is not ErrorCode.invalid_request:
        return
    body = request.body
    logger.debug(
        "%s v%d of %s (client id %s) was refused with INVALID_REQUEST: group %s, member %s, epoch or generation %s: %s",
        request.api.label,
        request.version,
        request.connection.peer,
        one_line(request.client_id),
        one_line(body.group_id),
        one_line(getattr(body, "member_id", None)),
        getattr(body, "member_epoch", getattr(body, "generation_id", None)),
        one_line(error),
    )
