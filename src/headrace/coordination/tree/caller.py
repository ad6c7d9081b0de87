"""The identities of one client, and what they permit: ZooKeeper's rules for access control lists. No I/O.

``SCHEMES`` is the table of schemes: which ids are valid in a list, and which identity of a client matches an id. A
client has the identity ``ip`` from the start. Logins add others. The identity ``super`` is in no list: it permits
everything.

The permissions of a list, and the lists that a client sends, are computed once per client, because most znodes have the
same list. So a check costs one lookup, and znodes that one client creates share one list in memory.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeVar

from headrace.coordination.acls import MAX_ACL_ENTRIES, Acl, AclEntry, shared
from headrace.coordination.interface import InvalidAclError

#: Identities of one client. ZooKeeper has no limit; a client that logs in more often guesses passwords.
MAX_IDENTITIES = 64
_MAX_CACHED, _MAX_CACHED_ENTRIES = 256, 16

T = TypeVar("T")


class Identity(NamedTuple):
    scheme: str
    id: str


SUPER = Identity("super", "")


class Scheme(NamedTuple):
    is_valid: Callable[[str], bool]
    #: Called with the id of a client and the id in a list.
    matches: Callable[[str, str], bool]
    #: Whether the identity comes from a login. The scheme ``auth`` stands for these identities.
    is_login: bool
    #: The part of an id that may be shown to others.
    user_of: Callable[[str], str]


def digest_of(name_and_password: str) -> str:
    """The id of the scheme ``digest`` for ``user:password``."""
    digest = hashlib.sha1(name_and_password.encode()).digest()
    return f"{name_and_password.partition(':')[0]}:{base64.b64encode(digest).decode()}"


def _is_digest(text: str) -> bool:
    # As in Java, empty parts at the end do not count.
    return len(text.rstrip(":").split(":")) == 2


def _is_same(mine: str, listed: str) -> bool:
    return hmac.compare_digest(mine.encode(), listed.encode())


@lru_cache(maxsize=_MAX_CACHED)
def _network(text: str) -> IPv4Network | IPv6Network | None:
    address, slash, bits = text.partition("/")
    try:
        host = ip_address(address)
        if "%" in address or (slash and not (bits.isascii() and bits.isdecimal())):
            return None
        return ip_network(f"{address}/{bits if slash else host.max_prefixlen}", strict=False)
    except ValueError:
        return None


def _is_network(text: str) -> bool:
    return _network(text) is not None


def _is_in_network(mine: str, listed: str) -> bool:
    network = _network(listed)
    try:
        return network is not None and ip_address(mine) in network
    except ValueError:
        return False


SCHEMES: dict[str, Scheme] = {
    "digest": Scheme(_is_digest, _is_same, True, lambda text: text.partition(":")[0]),
    "ip": Scheme(_is_network, _is_in_network, False, lambda text: text),
    "x509": Scheme(lambda text: "=" in text, _is_same, True, lambda text: text),
}


class Caller:
    """The identities of one connection. They end with the connection, not with its session."""

    def __init__(self, host: str) -> None:
        self.is_super = False
        self.identities: dict[Identity, None] = {Identity("ip", host): None}
        self._permissions: dict[Acl, int] = {}
        self._resolved: dict[Acl, Acl] = {}

    def add(self, identity: Identity) -> bool:
        """Adds an identity. False if the client has too many."""
        if identity not in self.identities and len(self.identities) >= MAX_IDENTITIES:
            return False
        self.identities[identity] = None
        self.is_super = self.is_super or identity == SUPER
        self._permissions.clear()
        self._resolved.clear()
        return True

    def may(self, permission: int, acl: Acl) -> bool:
        """Whether the client has the permission; one of them, if it is a sum of several."""
        if self.is_super:
            return True
        permissions = self._permissions.get(acl)
        if permissions is None:
            permissions = self._permitted(acl)
            _remember(self._permissions, acl, permissions)
        return permissions & permission != 0

    def resolved(self, acl: Acl) -> Acl:
        """The list that is stored for the list of a request: without duplicates, ``auth`` replaced by our identities.

        :raises InvalidAclError: if the list is empty or too long, or an entry is not valid.
        """
        found = self._resolved.get(acl)
        if found is None:
            found = self._resolve(acl)
            _remember(self._resolved, acl, found)
        return found

    def _permitted(self, acl: Acl) -> int:
        permitted = 0
        for permissions, scheme, listed in acl:
            if (scheme == "world" and listed == "anyone") or self._matches(scheme, listed):
                permitted |= permissions
        return permitted

    def _matches(self, scheme_name: str, listed: str) -> bool:
        scheme = SCHEMES.get(scheme_name)
        return scheme is not None and any(
            mine.scheme == scheme_name and scheme.matches(mine.id, listed) for mine in self.identities
        )

    def _resolve(self, acl: Acl) -> Acl:
        if not 0 < len(acl) <= MAX_ACL_ENTRIES:
            raise InvalidAclError(f"the list has {len(acl)} entries; 1 to {MAX_ACL_ENTRIES} are allowed")
        resolved: list[AclEntry] = []
        for entry in dict.fromkeys(acl):
            if entry.scheme == "auth":
                resolved += self._logged_in(entry.permissions)
            elif _is_valid(entry):
                resolved.append(entry)
            else:
                raise InvalidAclError(f"the list has an entry that is not valid, of the scheme {entry.scheme!r}")
        return shared(tuple(resolved))

    def _logged_in(self, permissions: int) -> list[AclEntry]:
        logins = [mine for mine in self.identities if mine.scheme in SCHEMES and SCHEMES[mine.scheme].is_login]
        if not logins:
            raise InvalidAclError("the list has an entry of the scheme 'auth', but the client has not logged in")
        return [AclEntry(permissions, *mine) for mine in logins]


def _is_valid(entry: AclEntry) -> bool:
    if entry.scheme == "world":
        return entry.id == "anyone"
    return entry.scheme in SCHEMES and SCHEMES[entry.scheme].is_valid(entry.id)


def _remember(cache: dict[Acl, T], acl: Acl, value: T) -> None:
    if len(acl) > _MAX_CACHED_ENTRIES:
        return
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    cache[acl] = value
