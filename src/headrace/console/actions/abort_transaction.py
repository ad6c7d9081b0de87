"""The action that aborts a hanging transaction: one in a partition that no coordinator knows."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.types import TopicPartition
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.group_fields import texts
from headrace.console.actions.topic_fields import TOPIC
from headrace.console.cluster.open_transactions import Hanging, find_hanging
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields
from headrace.console.request import ConsoleRequest
from headrace.console.texts import when_text

#: A transaction that is being committed may be unknown for a moment, so a young one is not aborted.
_YOUNG_MS = 60_000


async def _hanging(request: ConsoleRequest) -> Hanging:
    """
    :raises BadFields: if no transaction that hangs begins at the offset.
    """
    at = TopicPartition(request.text("topic"), request.number("partition"))
    before_ms = request.services.clock.wall_ms() - _YOUNG_MS
    for each in await find_hanging(request.cluster, [at], before_ms):
        if each.start_offset == request.number("start_offset"):
            return each
    raise BadFields(
        {"start_offset": "no transaction that hangs for a minute begins there; a known transaction can be terminated"},
        texts(request),
    )


async def preview(request: ConsoleRequest) -> Preview:
    found = await _hanging(request)
    return Preview(
        (
            f"Producer {found.producer_id} of epoch {found.producer_epoch} wrote last at "
            f"{when_text(found.last_write_ms)}, and no coordinator knows its transaction.",
            "An abort marker is written into the partition: consumers with read_committed skip the records.",
        )
    )


async def run(request: ConsoleRequest) -> Done:
    """Writes an abort marker for a transaction that no coordinator knows."""
    found = await _hanging(request)
    at = TopicPartition(found.topic, found.partition)
    await request.cluster.admin.abort_transaction(at, found.producer_id, found.producer_epoch, found.coordinator_epoch)
    return Done(f"The transaction in {at} was aborted.", "/cluster/transactions?search=true")


def command_line(values: Mapping[str, Value]) -> list[str]:
    words = ["headrace", "transactions", "abort", "--topic", str(values["topic"])]
    return [*words, "--partition", str(values["partition"]), "--start-offset", str(values["start_offset"])]


ACTION = Action(
    "abort-transaction",
    "Abort a hanging transaction",
    "Abort the transaction",
    (
        TOPIC,
        Field("partition", kind="number", is_required=True, least=0, most=2**31 - 1),
        Field("start_offset", "First offset of the transaction", kind="number", is_required=True, least=0),
    ),
    run,
    command_line,
    preview,
    typed="topic",
    section="/cluster",
)
