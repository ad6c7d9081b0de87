"""``headrace configs --entity-type users``: SCRAM credentials of users, by a broker or directly in ZooKeeper.

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
from headrace.client.errors import HeadraceError
from headrace.security.sasl.scram import HASHES, ScramCredential, new_credential
from headrace.tools.shared.commands import DONE, FAILED, CommandError, Output, Table, UsageError, connect
from headrace.tools.shared.scram_options import parse_password

if TYPE_CHECKING:
    from headrace.coordination.interface import Coordination

T = TypeVar("T")


def alter(options: Namespace, user: str, wanted: Sequence[ConfigChange], out: Output) -> int:
    """Sets and deletes credentials of a user."""
    unknown = [change.name for change in wanted if change.name not in HASHES]
    if unknown:
        raise UsageError(
            f"Invalid config(s) for users: {','.join(unknown)}. Users have credentials ({', '.join(HASHES)}); "
            f"Headrace has no quotas"
        )
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


def describe(options: Namespace, user: str | None, out: Output) -> int:
    """Shows the mechanisms and iterations of one user, or of all users."""
    if options.zookeeper:
        found: Mapping[str, list[ScramCredentialInfo] | HeadraceError] = _run_in_tree(
            options, lambda tree: _describe_tree(tree, user)
        )
    else:
        with connect(options) as admin:
            found = admin.describe_user_scram_credentials(None if user is None else [user])
    code, users = DONE, dict[str, list[ScramCredentialInfo]]()
    for name, infos in found.items():
        if isinstance(infos, HeadraceError):
            out.complain(f"Error retrieving SCRAM credential configs for user-principal '{name}': {infos}")
            code = FAILED
        else:
            users[name] = infos
    out.show(
        [
            {
                "entityType": "users",
                "entityName": name,
                "credentials": [{"mechanism": info.mechanism, "iterations": info.iterations} for info in infos],
            }
            for name, infos in users.items()
        ],
        (f"SCRAM credential configs for user-principal '{name}' are {_text(infos)}" for name, infos in users.items()),
        Table(
            ("USER", "MECHANISM", "ITERATIONS"),
            [(name, info.mechanism, str(info.iterations)) for name, infos in users.items() for info in infos],
        ),
    )
    return code


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


async def _describe_tree(tree: Coordination, user: str | None) -> dict[str, list[ScramCredentialInfo] | HeadraceError]:
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
