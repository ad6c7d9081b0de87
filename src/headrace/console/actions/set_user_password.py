"""The action that sets the password of a user for SCRAM, and makes the user if there is none.

The password goes neither into the audit log, nor into a page, nor into the command line. It does not leave the console:
brokers get the salted password.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.admin.scram import UserScramCredentialUpsertion
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.user_fields import MECHANISM, USER
from headrace.console.fields import Field, Value
from headrace.console.request import ConsoleRequest
from headrace.security.sasl.scram import MIN_ITERATIONS


async def preview(request: ConsoleRequest) -> Preview:
    user, mechanism = request.text("user"), request.text("mechanism")
    found = await request.cluster.admin.describe_user_scram_credentials()
    has = any(info.mechanism == mechanism for info in found.ok.get(user, ()))
    what = "is replaced: new logins need the new one" if has else "is set for the first time"
    return Preview((f"The password of {user} for {mechanism} {what}.", "In the command, write the password yourself."))


async def run(request: ConsoleRequest) -> Done:
    """Sets the password of a user for one mechanism."""
    user = request.text("user")
    wanted = UserScramCredentialUpsertion(
        user, request.text("mechanism"), request.text("password"), request.number("iterations")
    )
    (await request.cluster.admin.alter_user_scram_credentials([wanted])).value(user)
    return Done(f"The password of {user} was set.", "/security/users")


def command_line(values: Mapping[str, Value]) -> list[str]:
    setting = f"{values['mechanism']}=[iterations={values['iterations']},password=PASSWORD]"
    words = ["headrace", "configs", "--alter", "--entity-type", "users", "--entity-name", str(values["user"])]
    return [*words, "--add-config", setting]


ACTION = Action(
    "set-user-password",
    "Set a password",
    "Set the password",
    (
        USER,
        MECHANISM,
        Field("password", kind="secret", is_required=True, longest=1_000),
        Field("iterations", kind="number", default=MIN_ITERATIONS, least=MIN_ITERATIONS, most=16_384),
    ),
    run,
    command_line,
    preview,
    section="/security",
)
