"""Warns of ACLs in the znode tree that this broker does not enforce.

A broker enforces ACLs only if its own setting ``authorizer.class.name`` is set. Without it every client may use the
broker, but an administrator who sees ACLs in the tree may believe otherwise. A broker that finds such ACLs in the tree
at its start logs one warning.

===============================================  ===================================================================
/kafka-acl/TYPE/NAME                             ACLs of one resource
/kafka-acl-extended/PATTERN/TYPE/NAME            ACLs of all resources whose names fit a pattern
/headrace/acls/PATTERN/TYPE:NAME                 the same, for names that no znode can have
===============================================  ===================================================================
"""

from __future__ import annotations

from functools import partial
from logging import getLogger

from headrace.broker.tree.reads import read_each
from headrace.coordination.interface import Coordination, CoordinationError, NoNodeError

logger = getLogger(__name__)

#: The roots of the rules, and how many levels below them the rules are.
_ACLS = (("/kafka-acl", 2), ("/kafka-acl-extended", 3), ("/headrace/acls/literal", 1), ("/headrace/acls/prefixed", 1))


async def warn_of_unenforced_rules(coordination: Coordination) -> None:
    """Logs a warning if the tree has ACLs. A broker without an authorizer calls it."""
    try:
        acls = await _first_acl(coordination)
    except CoordinationError as error:
        logger.warning(
            "ACLs in ZooKeeper cannot be read, and this broker enforces none: every client of this broker may do "
            "everything (%r)",
            error,
        )
        return
    if acls is not None:
        logger.warning(
            "ZooKeeper has ACLs (%s), and this broker enforces none: every client of this broker may do everything. "
            "Set authorizer.class.name, or let only trusted networks reach this broker",
            acls,
        )


async def _first_acl(coordination: Coordination) -> str | None:
    for root, levels in _ACLS:
        found = await _below(coordination, root, levels)
        if found:
            return found[0]
    return None


async def _below(coordination: Coordination, root: str, levels: int) -> list[str]:
    """The sorted paths of all znodes that are this many levels below a root."""
    paths = [root]
    for _ in range(levels):
        below: list[str] = []
        async for path, names in read_each(partial(_children, coordination), paths):
            below += [f"{path}/{name}" for name in sorted(names)]
        paths = below
    return paths


async def _children(coordination: Coordination, path: str) -> list[str]:
    try:
        return list(await coordination.children(path))
    except NoNodeError:
        return []
