"""The SCRAM credentials of users for ``headrace configs``, by a broker or directly in ZooKeeper.

With ``--zookeeper`` the command writes to the tree itself, so that a cluster whose brokers log in by SCRAM can be
started for the first time. Brokers that run already learn of the change within a second.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from headrace.client.admin.scram import (
    ScramAlteration,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from headrace.client.admin.types import ConfigChange
from headrace.security.sasl.scram import ScramCredential, new_credential
from headrace.tools.shared.commands import DONE, CommandError, Output, connect
from headrace.tools.shared.scram_options import parse_password

if TYPE_CHECKING:
    from headrace.coordination.interface import Coordination

T = TypeVar("T")
Credentials = Sequence[ScramCredentialInfo]


def alter(options: Namespace, user: str, wanted: Sequence[ConfigChange], out: Output) -> int:
    """Sets and deletes credentials of a user."""
    upsertions = [
        UserScramCredentialUpsertion(user, change.name, *parse_password(change.name, change.value))
        for change in wanted
        if change.value is not None
    ]
    deletions = [UserScramCredentialDeletion(user, change.name) for change in wanted if change.value is None]
    if options.zookeeper:
        _run_in_tree(options, lambda tree: _alter_tree(tree, user, upsertions, deletions))
    else:
        with connect(options) as admin:
            alterations: list[ScramAlteration] = [*deletions, *upsertions]
            for alteration in alterations:  # a request may name a user once
                admin.alter_user_scram_credentials([alteration]).value(user)
    out.show(
        {"entityType": "users", "entityName": user, "changed": [change.name for change in wanted]},
        f"Completed updating config for user {user}.",
    )
    return DONE


def credentials_in_tree(options: Namespace, user: str | None) -> Mapping[str, Credentials]:
    """Reads the credentials of one user, or of all users, from ZooKeeper."""
    return _run_in_tree(options, lambda tree: _describe_tree(tree, user))


def json_values(found: Mapping[str, Credentials]) -> list[dict[str, object]]:
    """The values for ``--json``."""
    return [
        {
            "entityType": "users",
            "entityName": name,
            "credentials": [{"mechanism": info.mechanism, "iterations": info.iterations} for info in infos],
        }
        for name, infos in found.items()
    ]


def lines(found: Mapping[str, Credentials]) -> list[str]:
    return [f"SCRAM credential configs for user-principal '{name}' are {_text(infos)}" for name, infos in found.items()]


def rows(found: Mapping[str, Credentials]) -> list[tuple[str, str, str]]:
    """The rows of a table: entity, setting, value."""
    return [
        (f"user {name}", info.mechanism, f"iterations={info.iterations}")
        for name, infos in found.items()
        for info in infos
    ]


def _text(infos: Sequence[ScramCredentialInfo]) -> str:
    return ", ".join(f"{info.mechanism}=iterations={info.iterations}" for info in infos)


# -- in ZooKeeper


def _run_in_tree(options: Namespace, work: Callable[[Coordination], Awaitable[T]]) -> T:
    from headrace.tools.shared.zookeeper_options import client_security
    from headrace.tools.shared.zookeeper_work import run_in_zookeeper

    return run_in_zookeeper(options.zookeeper, options.timeout, client_security(options), work)


async def _alter_tree(
    tree: Coordination,
    user: str,
    upsertions: Sequence[UserScramCredentialUpsertion],
    deletions: Sequence[UserScramCredentialDeletion],
) -> None:
    from headrace.broker.authentication.scram_users import announce_user, change_user, entity_of
    from headrace.coordination.paths import CONFIG_CHANGES, USER_CONFIGS

    added = {one.mechanism: new_credential(one.mechanism, one.password, one.iterations) for one in upsertions}

    def change(configs: Mapping[str, str]) -> Mapping[str, str]:
        changed = {**configs, **{mechanism: credential.to_text() for mechanism, credential in added.items()}}
        for one in deletions:
            if changed.pop(one.mechanism, None) is None:
                raise CommandError(f"User {user} has no {one.mechanism} credential to delete")
        return changed

    await _make_path(tree, USER_CONFIGS)
    await _make_path(tree, CONFIG_CHANGES)
    await change_user(tree, entity_of(user), change)
    await announce_user(tree, entity_of(user))


async def _make_path(tree: Coordination, path: str) -> None:
    from headrace.coordination.interface import NodeExistsError

    try:
        await tree.create(path, make_parents=True)
    except NodeExistsError:
        return


async def _describe_tree(tree: Coordination, user: str | None) -> dict[str, Credentials]:
    from headrace.broker.authentication.scram_users import ScramUsers
    from headrace.coordination.interface import NoNodeError

    users = ScramUsers()
    with suppress(NoNodeError):  # no broker has started yet
        await users.load(tree)
    if user is not None and user not in users:
        raise CommandError(f"There is no SCRAM credential for user {user}")
    return {name: _infos(users.of(name)) for name in ([user] if user is not None else users)}


def _infos(credentials: Mapping[str, ScramCredential]) -> list[ScramCredentialInfo]:
    return [ScramCredentialInfo(name, credential.iterations) for name, credential in credentials.items()]
