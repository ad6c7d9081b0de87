"""The paths and the JSON of rules in ZooKeeper, as Kafka's AclAuthorizer wrote them. No I/O.

=============================================  ===============================================================
/kafka-acl/TYPE/NAME                           the rules of a literal pattern
/kafka-acl-extended/prefixed/TYPE/NAME         the rules of a prefixed pattern
/kafka-acl-changes/acl_changes_N               a literal pattern has changed (sequential): ``TOPIC:name``
/kafka-acl-extended-changes/acl_changes_N      a prefixed pattern has changed (sequential): JSON
=============================================  ===============================================================

TYPE is the title of a resource type (``TransactionalId``). NAME is the pattern's name, unchanged.

Some names cannot be names of znodes: names with a slash, ``.`` and ``..``, and names with control characters. Kafka
refused rules for them in ZooKeeper (KAFKA-13983), and accepts them since it has KRaft. Headrace has paths of its own
for them, which Kafka does not read. NAME is encoded there as in URLs (``Group:team%2Fapp``):

=============================================  ===============================================================
/headrace/acls/literal/TYPE:NAME               the rules of a literal pattern
/headrace/acls/prefixed/TYPE:NAME              the rules of a prefixed pattern
/headrace/acls/changes/acl_changes_N           one of these patterns has changed (sequential): JSON
=============================================  ===============================================================

The rules of a pattern::

    {"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}

A change as JSON::

    {"version":1,"resourceType":"TOPIC","name":"orders-","patternType":"PREFIXED"}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote

from headrace.security.acls.bindings import AclEntry, AclPattern
from headrace.security.acls.kinds import AclOperation, PatternType, Permission, ResourceType
from headrace.security.principal import Principal

#: Where patterns of each type are.
ROOTS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
_OWN_ROOT = "/headrace/acls"
#: The same for names that no znode can have.
OWN_ROOTS = {PatternType.LITERAL: f"{_OWN_ROOT}/literal", PatternType.PREFIXED: f"{_OWN_ROOT}/prefixed"}
_LITERAL_CHANGES = "/kafka-acl-changes"
_PREFIXED_CHANGES = "/kafka-acl-extended-changes"
_OWN_CHANGES = f"{_OWN_ROOT}/changes"
#: Where changes are announced.
CHANGES = (_LITERAL_CHANGES, _PREFIXED_CHANGES, _OWN_CHANGES)
CHANGE_NAME = "acl_changes_"
#: The largest content of a znode. ZooKeeper closes the connection of a client that writes more than 1 MiB.
MAX_ZNODE_BYTES = 1_000_000

_TYPES = tuple(kind for kind in ResourceType if kind.is_concrete)
#: The znodes that an authorizer creates, without content, parents first.
PERSISTENT_PATHS: tuple[str, ...] = (
    "/kafka-acl",
    "/kafka-acl-extended",
    "/kafka-acl-extended/prefixed",
    "/headrace",
    _OWN_ROOT,
    *OWN_ROOTS.values(),
    *CHANGES,
    *(f"{root}/{kind.title}" for root in ROOTS.values() for kind in _TYPES),
)


class MalformedRulesError(ValueError):
    """The content of a znode is not that of rules, or of a change of rules."""


def pattern_path(pattern: AclPattern) -> str:
    if can_be_znode(pattern.name):
        return f"{ROOTS[pattern.pattern_type]}/{pattern.resource_type.title}/{pattern.name}"
    return f"{OWN_ROOTS[pattern.pattern_type]}/{pattern.resource_type.title}:{_encoded(pattern.name)}"


def own_pattern(kind: PatternType, znode: str) -> AclPattern:
    """Returns the pattern of a znode in ``OWN_ROOTS[kind]``.

    :raises MalformedRulesError: if Headrace does not write a znode of this name.
    """
    title, _, encoded = znode.partition(":")
    try:
        pattern = AclPattern(ResourceType.of_name(title), unquote(encoded, errors="strict"), kind)
    except ValueError as error:
        raise MalformedRulesError(f"{OWN_ROOTS[kind]}/{znode} names no resource: {error}") from None
    if not pattern.name or pattern_path(pattern) != f"{OWN_ROOTS[kind]}/{znode}":
        raise MalformedRulesError(f"{OWN_ROOTS[kind]}/{znode} is not the place of the rules of {pattern}")
    return pattern


def _encoded(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")


def can_be_znode(name: str) -> bool:
    """Returns whether a pattern's name can be the name of a znode."""
    return bool(name) and name not in (".", "..") and "/" not in name and all(map(_is_allowed_in_znodes, name))


def _is_allowed_in_znodes(character: str) -> bool:
    """ZooKeeper rejects control characters, surrogates, and the last characters of the private areas."""
    code = ord(character)
    return not (code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF)


def encode_rules(entries: Iterable[AclEntry]) -> bytes:
    """Returns the content of a pattern's znode. Equal sets of rules have equal contents."""
    rules = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.title,
            "operation": entry.operation.title,
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return _encode({"version": 1, "acls": rules})


def decode_rules(content: bytes) -> frozenset[AclEntry]:
    """Returns the rules of a pattern's znode. A znode without content has no rules.

    :raises MalformedRulesError: if the content is anything else. No rule is ever left out.
    """
    if not content:
        return frozenset()
    try:
        stored = json.loads(content)
        if stored["version"] != 1:
            raise ValueError(f"version {stored['version']!r} is unknown")
        return frozenset(map(_entry, stored["acls"]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise MalformedRulesError(f"{content[:200]!r} are not the rules of a resource: {error}") from None


def _entry(stored: Any) -> AclEntry:
    operation, permission = AclOperation.of_name(stored["operation"]), Permission.of_name(stored["permissionType"])
    if not operation.is_concrete or not permission.is_concrete:
        raise ValueError(f"a rule cannot have the operation {operation.title} or the permission {permission.title}")
    principal, host = stored["principal"], stored["host"]
    if not isinstance(host, str):
        raise TypeError(f"{host!r} is not a host")
    return AclEntry(str(Principal.parse(principal)), host, operation, permission)


def changes_path(pattern: AclPattern) -> str:
    """Returns where a change of a pattern is announced."""
    if not can_be_znode(pattern.name):
        return _OWN_CHANGES
    return _LITERAL_CHANGES if pattern.pattern_type is PatternType.LITERAL else _PREFIXED_CHANGES


def encode_change(pattern: AclPattern) -> bytes:
    """Returns the content of the znode that announces a change."""
    if changes_path(pattern) == _LITERAL_CHANGES:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return _encode(
        {
            "version": 1,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_change(parent: str, content: bytes) -> AclPattern:
    """Returns the pattern that has changed.

    :param parent: one of ``CHANGES``.
    :raises MalformedRulesError: if the content does not name a pattern.
    """
    try:
        if parent == _LITERAL_CHANGES:
            resource, colon, name = content.decode().partition(":")
            found = AclPattern(ResourceType.of_name(resource), name, PatternType.LITERAL)
            if not colon:
                raise ValueError("there is no colon")
        else:
            event = json.loads(content)
            resource, pattern_type = event["resourceType"], PatternType.of_name(event["patternType"])
            found = AclPattern(ResourceType.of_name(resource), str(event["name"]), pattern_type)
        if not found.resource_type.is_concrete or not found.pattern_type.is_concrete:
            raise ValueError("it names no pattern")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise MalformedRulesError(f"{content[:200]!r} is not a change of rules: {error}") from None
    return found


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
