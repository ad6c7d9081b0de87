"""``headrace configs`` for users, clients and ips: client quotas, and the SCRAM credentials of users beside them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.client.errors import BrokerError
from headrace.protocol.errors import ErrorCode
from headrace.security.sasl.scram import HASHES
from headrace.tools.configs import quota_entities, users
from headrace.tools.configs.entities import USERS, Entity, completed
from headrace.tools.configs.quota_entities import check_names, limits_of, quota_entity, quota_filter
from headrace.tools.shared.commands import DONE, CommandError, Output, Table, UsageError, connect

if TYPE_CHECKING:
    from headrace import Admin
    from headrace.client.admin.types import ConfigChange
    from headrace.tools.configs.quota_entities import Quotas
    from headrace.tools.configs.users import Credentials


def alter(options: Namespace, entities: Sequence[Entity], wanted: Sequence[ConfigChange], out: Output) -> int:
    """Sets and removes quotas, or credentials of a user."""
    check_names(entities, wanted)
    entity = entities[0]
    if wanted[0].name in HASHES:
        assert entity.name
        return users.alter(options, entity.name, wanted, out)
    if options.zookeeper:
        raise UsageError("--zookeeper is for SCRAM credentials; use --bootstrap-server for quotas")
    subject, limits = quota_entity(entities), limits_of(wanted)
    with connect(options) as admin:
        _check_removed(admin, entities, [name for name, limit in limits.items() if limit is None])
        admin.alter_client_quotas({subject: limits}).value(subject)
    out.show({"entity": quota_entities.json_names(subject), "changed": limits}, completed(entity))
    return DONE


def _check_removed(admin: Admin, entities: Sequence[Entity], names: Sequence[str]) -> None:
    """Checks that the quotas to be removed are there, as Kafka's tool does."""
    if not names:
        return
    found = admin.describe_client_quotas(**quota_filter(entities), strict=True)
    missing = [name for name in names if name not in found.get(quota_entity(entities), {})]
    if missing:
        raise CommandError(f"Invalid config(s): {','.join(missing)}")


def describe(options: Namespace, entities: Sequence[Entity], out: Output) -> int:
    """Shows quotas, and with them the mechanisms and iterations of users."""
    quotas: Quotas = {}
    credentials: dict[str, Credentials] = {}
    only_users = [each.type.name for each in entities] == [USERS] and not entities[0].is_default
    name = entities[0].name
    if options.zookeeper:
        if not only_users:
            raise UsageError("--zookeeper is for SCRAM credentials; use --bootstrap-server for quotas")
        credentials.update(users.credentials_in_tree(options, name))
    else:
        with connect(options) as admin:
            quotas = quota_entities.in_order(admin.describe_client_quotas(**quota_filter(entities), strict=True))
            if only_users:
                credentials.update(_credentials(admin, name))
    out.show(
        [*quota_entities.json_values(quotas), *users.json_values(credentials)],
        [*quota_entities.lines(quotas), *users.lines(credentials)],
        Table(("ENTITY", "CONFIG", "VALUE"), [*quota_entities.rows(quotas), *users.rows(credentials)]),
    )
    return DONE


def _credentials(admin: Admin, user: str | None) -> dict[str, Credentials]:
    """Returns the credentials by user. A user without credentials is left out."""
    found: dict[str, Credentials] = {}
    for name, infos in admin.describe_user_scram_credentials(None if user is None else [user]).items():
        if isinstance(infos, BrokerError) and infos.code is ErrorCode.resource_not_found:
            continue
        if isinstance(infos, Exception):
            raise infos
        found[name] = infos
    return found
