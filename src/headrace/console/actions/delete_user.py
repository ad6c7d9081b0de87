"""The action that deletes the SCRAM credential of a user."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.admin.scram import UserScramCredentialDeletion
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.user_fields import MECHANISM, USER
from headrace.console.fields import Value
from headrace.console.request import ConsoleRequest


async def preview(request: ConsoleRequest) -> Preview:
    user, mechanism = request.text("user"), request.text("mechanism")
    (await request.cluster.admin.describe_user_scram_credentials([user])).value(user)
    return Preview((f"{user} can no longer log in by {mechanism}. Connections that are open stay open.",))


async def run(request: ConsoleRequest) -> Done:
    """Deletes the credential of a user for one mechanism. ACLs and quotas of the user stay."""
    user, mechanism = request.text("user"), request.text("mechanism")
    wanted = UserScramCredentialDeletion(user, mechanism)
    (await request.cluster.admin.alter_user_scram_credentials([wanted])).value(user)
    return Done(f"The credential {mechanism} of {user} was deleted.", "/security/users")


def command_line(values: Mapping[str, Value]) -> list[str]:
    words = ["headrace", "configs", "--alter", "--entity-type", "users", "--entity-name", str(values["user"])]
    return [*words, "--delete-config", str(values["mechanism"])]


ACTION = Action(
    "delete-user", "Delete a user", "Delete the user", (USER, MECHANISM), run, command_line, preview,
    typed="user", section="/security",
)  # fmt: skip
