"""Access control lists as ZooKeeper's shell writes them: ``scheme:id:permissions``, separated by commas.

The permissions are the letters c, d, r, w and a: create, delete, read, write, admin. The id of a digest contains a
colon, so the permissions begin after the last colon: ``digest:alice:HASH:cdrwa``.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.coordination.acls import PERMISSION_LETTERS, Acl, AclEntry
from headrace.tools.shared.commands import UsageError


def parse_acl(text: str) -> Acl:
    """:raises UsageError: if an entry does not have this form. ZooKeeper's shell would leave the entry out."""
    return tuple(_entry(part) for part in text.split(","))


def _entry(text: str) -> AclEntry:
    scheme, colon, rest = text.partition(":")
    name, second_colon, letters = rest.rpartition(":")
    if not colon or not second_colon:
        raise UsageError(f"{text} does not have the form scheme:id:perm")
    unknown = [letter for letter in letters if letter not in PERMISSION_LETTERS]
    if unknown or not letters:
        raise UsageError(f"Unknown perm type: {''.join(unknown) or 'none'} in {text}; the permissions are cdrwa")
    return AclEntry(sum({PERMISSION_LETTERS[letter] for letter in letters}), scheme, name)


def letters_of(permissions: int) -> str:
    return "".join(letter for letter, permission in PERMISSION_LETTERS.items() if permissions & permission)


def acl_lines(acl: Acl) -> Iterable[str]:
    """Two lines per entry, as ZooKeeper's shell prints them."""
    for permissions, scheme, name in acl:
        yield f"'{scheme},'{name}"
        yield f": {letters_of(permissions)}"


def acl_json(acl: Acl) -> list[dict[str, str]]:
    return [{"scheme": scheme, "id": name, "perms": letters_of(permissions)} for permissions, scheme, name in acl]
