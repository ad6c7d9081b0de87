"""What the APIs that make, grow and delete topics share: in a cluster they answer when it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def settle(
    broker: Broker,
    answers: Sequence[dict[str, Any]],
    *,
    timeout_ms: int,
    made: Mapping[str, int] | None = None,
    gone: Sequence[str] = (),
) -> None:
    """Waits until topics have leaders for so many partitions, or are gone; what takes too long is marked so in its
    answer. A broker alone has done it all already."""
    if broker.cluster is None:
        return
    from headrace.broker.cluster.hearsay import others_have_heard  # a broker alone imports nothing of a cluster

    made = made or {}
    late = await broker.cluster.topics.wait_for(made, timeout_ms, gone=gone)
    if not late:
        await others_have_heard(broker, made, gone, timeout_ms)
    for answer in answers:
        if answer["name"] in late:
            answer.update(error_code=ErrorCode.request_timed_out, error_message="it is not done yet, and goes on")
