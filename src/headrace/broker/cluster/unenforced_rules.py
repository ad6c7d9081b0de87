"""Warns of rules in the znode tree that this broker does not enforce: ACLs, and client quotas that Apache Kafka stored.

A broker enforces ACLs only if its own setting ``authorizer.class.name`` is set. Without it every client may use the
broker, but an administrator who sees ACLs in the tree may believe otherwise. Every Kafka broker enforces quotas, and no
Headrace broker does. A broker that finds such ACLs or quotas in the tree at its start logs one warning for each kind. A
quota that is set later gets its own warning (``config_changes.py``).

===============================================  ===================================================================
/kafka-acl/TYPE/NAME                             ACLs of one resource
/kafka-acl-extended/PATTERN/TYPE/NAME            ACLs of all resources whose names fit a pattern
/config/users/U, /config/clients/C,              quotas, among other settings such as SCRAM credentials
/config/ips/I, /config/users/U/clients/C
===============================================  ===================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from logging import getLogger

from headrace.coordination.interface import Coordination, CoordinationError, NoNodeError
from headrace.coordination.znodes import EntityConfig, MalformedZnodeError

logger = getLogger(__name__)

#: The types of entities that may have quotas.
QUOTA_ENTITIES = ("users", "clients", "ips")
_QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
#: The roots of the rules, and how many levels below them the rules are.
_ACLS = (("/kafka-acl", 2), ("/kafka-acl-extended", 3))
_CONFIGS = (*((f"/config/{kind}", 1) for kind in QUOTA_ENTITIES), ("/config/users", 3))
#: How many reads run at the same time: there may be thousands of users.
_AT_ONCE = 100


async def warn_of_unenforced_rules(coordination: Coordination, *, has_authorizer: bool) -> None:
    """Logs a warning for ACLs and one for quotas, if the tree has any that this broker does not enforce."""
    try:
        acls = None if has_authorizer else await _first_acl(coordination)
        quota = await _first_quota(coordination)
    except CoordinationError as error:
        logger.warning(
            "ACLs and quotas in ZooKeeper cannot be read, and this broker enforces no quotas%s (%r)",
            "" if has_authorizer else ", and no ACLs: every client of this broker may do everything",
            error,
        )
        return
    if acls is not None:
        logger.warning(
            "ZooKeeper has ACLs (%s), and this broker enforces none: every client of this broker may do everything. "
            "Set authorizer.class.name, or let only trusted networks reach this broker",
            acls,
        )
    if quota is not None:
        warn_of_quota(quota)


def warn_of_quota(path: str) -> None:
    logger.warning("ZooKeeper has client quotas (%s), and Headrace enforces none: no client is slowed down", path)


def has_quota(configs: Mapping[str, str]) -> bool:
    return any(name in configs for name in _QUOTAS)


async def _first_acl(coordination: Coordination) -> str | None:
    for root, levels in _ACLS:
        found = await _below(coordination, root, levels)
        if found:
            return found[0]
    return None


async def _first_quota(coordination: Coordination) -> str | None:
    for root, levels in _CONFIGS:
        paths = await _below(coordination, root, levels)
        for start in range(0, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            configs = await asyncio.gather(*(_configs(coordination, path) for path in some))
            for path, found in zip(some, configs, strict=True):
                if has_quota(found):
                    return path
    return None


async def _below(coordination: Coordination, root: str, levels: int) -> list[str]:
    """The sorted paths of all znodes that are this many levels below a root."""
    paths = [root]
    for _ in range(levels):
        below: list[str] = []
        for start in range(0, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            names = await asyncio.gather(*(_children(coordination, path) for path in some))
            below += [f"{path}/{name}" for path, found in zip(some, names, strict=True) for name in sorted(found)]
        paths = below
    return paths


async def _children(coordination: Coordination, path: str) -> list[str]:
    try:
        return list(await coordination.children(path))
    except NoNodeError:
        return []


async def _configs(coordination: Coordination, path: str) -> Mapping[str, str]:
    try:
        data, _ = await coordination.get(path)
        return EntityConfig.from_json(data).config
    except (NoNodeError, MalformedZnodeError):
        return {}
