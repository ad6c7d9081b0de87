"""Describes and changes the SCRAM credentials of users (KIP-554).

A password does not leave the client: the client sends the salted password, and the broker stores what follows from it.
The salted password is as good as the password for a login. So use a connection with TLS.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.client.admin.requests import AdminRequests, outcome, raise_for
from headrace.client.admin.types import Results
from headrace.protocol.api import Api
from headrace.security.sasl.scram import MECHANISM_IDS, MIN_ITERATIONS, new_salt, salted_password

_MECHANISMS = {number: name for name, number in MECHANISM_IDS.items()}


class ScramCredentialInfo(NamedTuple):
    """A credential of a user: the mechanism (``SCRAM-SHA-256``), and the number of iterations."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """Sets the password of a user for one mechanism. Without a salt, a random salt is used."""

    user: str
    mechanism: str
    password: str = field(repr=False)
    iterations: int = MIN_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """Deletes the credential of a user for one mechanism."""

    user: str
    mechanism: str


ScramAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


class ScramAdmin:
    """The users of a cluster that log in by SCRAM."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> Results[str, list[ScramCredentialInfo]]:
        """Returns the credentials of each user.

        :param users: the users. Without it, all users that have a credential.
        """
        wanted = None if users is None else [{"name": user} for user in dict.fromkeys(users)]
        answer = await self._requests.ask_controller(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, timeout_ms, users=wanted)
        raise_for(answer.error_code, "the credentials of users", answer.error_message)
        return Results(
            (
                found.user,
                outcome(
                    found.error_code,
                    [
                        ScramCredentialInfo(_name_of(info.mechanism), int(info.iterations))
                        for info in found.credential_infos
                    ],
                    f"the credentials of user {found.user!r}",
                    found.error_message,
                ),
            )
            for found in answer.results
        )

    async def alter_user_scram_credentials(
        self, alterations: Iterable[ScramAlteration], *, timeout_ms: float | None = None
    ) -> Results[str, None]:
        """Sets and deletes credentials: one per user and call, as Kafka demands.

        ::

            await admin.alter_user_scram_credentials([
                UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "secret", iterations=8192),
                UserScramCredentialDeletion("bob", "SCRAM-SHA-512"),
            ])

        :raises ValueError: if a mechanism is not SCRAM-SHA-256 or SCRAM-SHA-512.
        """
        wanted = list(alterations)
        answer = await self._requests.ask_controller(
            Api.ALTER_USER_SCRAM_CREDENTIALS,
            timeout_ms,
            codes=lambda answer: [found.error_code for found in answer.results],
            deletions=[_deletion(one) for one in wanted if isinstance(one, UserScramCredentialDeletion)],
            upsertions=[_upsertion(one) for one in wanted if isinstance(one, UserScramCredentialUpsertion)],
        )
        return Results(
            (
                found.user,
                outcome(found.error_code, None, f"the credentials of user {found.user!r}", found.error_message),
            )
            for found in answer.results
        )


def _name_of(mechanism: int) -> str:
    return _MECHANISMS.get(int(mechanism), f"UNKNOWN ({mechanism})")


def _number_of(mechanism: str) -> int:
    number = MECHANISM_IDS.get(mechanism)
    if number is None:
        raise ValueError(f"{mechanism!r} is not a SCRAM mechanism: use one of {', '.join(MECHANISM_IDS)}")
    return number


def _deletion(one: UserScramCredentialDeletion) -> dict[str, Any]:
    return {"name": one.user, "mechanism": _number_of(one.mechanism)}


def _upsertion(one: UserScramCredentialUpsertion) -> dict[str, Any]:
    number = _number_of(one.mechanism)
    salt = new_salt() if one.salt is None else one.salt
    # The broker refuses a wrong number of iterations. The client does not compute a very large number of them first.
    iterations = min(max(1, one.iterations), 1_000_000)
    salted = salted_password.__wrapped__(one.mechanism, one.password.encode(), salt, iterations)
    return {
        "name": one.user,
        "mechanism": number,
        "iterations": one.iterations,
        "salt": salt,
        "salted_password": salted,
    }
