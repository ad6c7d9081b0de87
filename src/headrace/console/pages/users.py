"""The page Users: users that log in by SCRAM, and delegation tokens. No secret is read into the page."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.admin.delegation_tokens import DelegationToken
from headrace.client.admin.scram import ScramCredentialInfo
from headrace.client.admin.types import Results
from headrace.console.cluster.reader import LIST_SECONDS
from headrace.console.pages.page import Page
from headrace.console.pages.part import attempt
from headrace.console.problems import Problem
from headrace.console.request import ConsoleRequest

_MOST_ROWS = 1_000


@dataclass(frozen=True)
class UserRow:
    """A credential of a user."""

    user: str
    mechanism: str
    iterations: int


@dataclass(frozen=True)
class TokenRow:
    """A delegation token, without its secret."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int


@dataclass(frozen=True)
class Users:
    """The users and tokens that the visitor may see, at most a thousand of each."""

    users: tuple[UserRow, ...]
    user_count: int
    users_problem: Problem | None
    tokens: tuple[TokenRow, ...]
    token_count: int
    tokens_problem: Problem | None


async def read(request: ConsoleRequest) -> Users:
    """The SCRAM credentials of users, and the delegation tokens, without secrets."""
    cluster = request.cluster
    none: Results[str, list[ScramCredentialInfo]] = Results()
    found, users_problem = await attempt(
        cluster.kept("scram users", LIST_SECONDS, cluster.admin.describe_user_scram_credentials), none
    )
    users = [
        UserRow(user, info.mechanism, info.iterations) for user, infos in sorted(found.ok.items()) for info in infos
    ]
    tokens, tokens_problem = await attempt(
        cluster.kept("tokens", LIST_SECONDS, cluster.admin.describe_delegation_tokens), []
    )
    return Users(
        tuple(users[:_MOST_ROWS]),
        len(users),
        users_problem,
        tuple(map(_token_row, sorted(tokens, key=lambda token: token.expiry_ms)[:_MOST_ROWS])),
        len(tokens),
        tokens_problem,
    )


def _token_row(token: DelegationToken) -> TokenRow:
    return TokenRow(
        token.token_id,
        str(token.owner),
        str(token.requester),
        tuple(map(str, token.renewers)),
        token.issue_ms,
        token.expiry_ms,
        token.max_ms,
    )


PAGE = Page("/security/users", "Users and tokens", read, "users.html", section="/security")
