"""The action that ends an open transaction by fencing its producer."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.fields import Field, Value
from headrace.console.request import ConsoleRequest


async def preview(request: ConsoleRequest) -> Preview:
    found = await request.cluster.admin.describe_transaction(request.text("transactional_id"))
    return Preview(
        (
            f"The transaction is {found.state}. It is aborted: consumers with read_committed skip its records.",
            "The producer that uses the transactional id now is fenced, and can only be closed.",
        ),
        ("topic", "partition"),
        tuple((at.topic, str(at.partition)) for at in found.partitions[:200]),
    )


async def run(request: ConsoleRequest) -> Done:
    """Fences the producer of a transactional id, which aborts its open transaction."""
    name, admin = request.text("transactional_id"), request.cluster.admin
    await admin.describe_transaction(name)  # Fencing would create an id that does not exist.
    (await admin.fence_producers([name])).value(name)
    return Done(f"The transaction of {name} was ended.", "/cluster/transactions")


def command_line(values: Mapping[str, Value]) -> list[str]:
    name = str(values["transactional_id"])
    return ["headrace", "transactions", "forceTerminateTransaction", "--transactional-id", name]


ACTION = Action(
    "terminate-transaction",
    "Terminate a transaction",
    "Terminate the transaction",
    (Field("transactional_id", "Transactional id", is_required=True, is_fixed=True),),
    run,
    command_line,
    preview,
    typed="transactional_id",
    section="/cluster",
)
