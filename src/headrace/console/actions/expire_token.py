"""The action that lets a delegation token expire at once. The secret of the token stays in the console."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.admin.delegation_tokens import DelegationToken
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.fields import Field, Value
from headrace.console.problems import NotFound
from headrace.console.request import ConsoleRequest
from headrace.console.texts import when_text


async def _token(request: ConsoleRequest) -> DelegationToken:
    for token in await request.cluster.admin.describe_delegation_tokens():
        if token.token_id == request.text("token_id"):
            return token
    raise NotFound("there is no such token, or you may not see it")


async def preview(request: ConsoleRequest) -> Preview:
    token = await _token(request)
    return Preview(
        (
            f"The token of {token.owner} would expire at {when_text(token.expiry_ms)}. It expires at once: nobody can "
            "log in with it again.",
            "The command reads the secret of the token from a file; the console does not show secrets.",
        )
    )


async def run(request: ConsoleRequest) -> Done:
    """Lets a delegation token expire at once."""
    token = await _token(request)
    await request.cluster.admin.expire_delegation_token(token.hmac)
    return Done(f"The token {token.token_id} has expired.", "/security/users#tokens")


def command_line(_: Mapping[str, Value]) -> list[str]:
    return ["headrace", "delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac-file", "FILE"]


ACTION = Action(
    "expire-token",
    "Expire a token",
    "Expire the token",
    (Field("token_id", "Token", is_required=True, is_fixed=True),),
    run,
    command_line,
    preview,
    section="/security",
)
