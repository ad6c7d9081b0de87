"""Holds the quotas of all entities, and finds the one that limits a client. No I/O.

``stored_quotas.py`` fills it from the znode tree. Of all quotas that fit a client, the first of this list counts, for
each key on its own:

=====================================  =================  ======================================================
quota of                               measured per       in other words
=====================================  =================  ======================================================
a user's client id                     user and client    all connections of this client id share the limit
a user's default client                user and client    each client id of the user has the limit for itself
a user                                 user               all clients of the user share the limit
a client id of the default user        user and client    each user has the limit for this client id
the default client of the default user user and client    each client id of each user has the limit for itself
the default user                       user               each user has the limit for all clients of the user
a client id                            client             all users with this client id share the limit
the default client                     client             each client id has the limit, for all users together
=====================================  =================  ======================================================

A client without a client id is limited by quotas of users only, because Kafka takes the empty client id for none: a
quota of a default client that comes first in the list hides the quotas below it, and then the user's own quota or that
of the default user counts.

A lookup needs at most eight lookups in a dictionary, however many quotas there are. Callers keep its result, and ask
again when :attr:`ClientQuotas.version` has changed.
"""

from __future__ import annotations

from collections.abc import ItemsView, Mapping
from typing import NamedTuple

from headrace.broker.quotas.entities import CLIENT_KEYS, CONNECTION_CREATION_RATE, DEFAULT, REQUEST_KEYS, Entity, Name
from headrace.security.ip_addresses import address_of

_NONE: Mapping[str, float] = {}


class QuotaTags(NamedTuple):
    """The subject of a rate, as Kafka tags its metrics: clients with the same tags share one rate.

    The empty text stands for all: with an empty client id, all clients of the user share the rate. Names are as the
    client gave them; Kafka's metrics show users percent-encoded.
    """

    user: str
    client_id: str


class Limit(NamedTuple):
    #: Per second; of ``request_percentage`` per cent of one thread. Above 0.
    value: float
    entity: QuotaTags


class QuotaTable:
    """The quotas of one key."""

    __slots__ = ("_limits", "any")

    def __init__(self) -> None:
        #: The keys are entities, or tuples that equal them.
        self._limits: dict[tuple[Name, Name, Name], float] = {}
        #: Whether any entity has a quota. A caller tests it first: without quotas a request pays for nothing else.
        self.any = False

    def replace(self, entity: Entity, limit: float | None) -> None:
        if limit is None:
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit
        self.any = bool(self._limits)

    def limit(self, user: str, client_id: str) -> Limit | None:
        """Returns the limit of a client, given the name of its principal."""
        get = self._limits.get
        tags = QuotaTags(user, client_id)
        value = get((user, client_id, None))
        if value is None:
            value = get((user, DEFAULT, None))
        if value is None:
            tags = QuotaTags(user, "")
            value = get((user, None, None))
        if value is None:
            tags = QuotaTags(user, client_id)
            value = get((DEFAULT, client_id, None))
        if value is None:
            value = get((DEFAULT, DEFAULT, None))
        if value is None:
            tags = QuotaTags(user, "")
            value = get((DEFAULT, None, None))
        if value is None:
            tags = QuotaTags("", client_id)
            value = get((None, client_id, None))
        if value is None:
            value = get((None, DEFAULT, None))
        if not client_id or not user:
            value = self._limit_without_name(tags)
        return None if value is None else Limit(value, tags)

    def _limit_without_name(self, tags: QuotaTags) -> float | None:
        """Returns the limit if the client has no client id, or no user name: Kafka looks it up by the tags alone."""
        get = self._limits.get
        if tags.user:
            own = get((tags.user, None, None))
            return get((DEFAULT, None, None)) if own is None else own
        if tags.client_id:
            own = get((None, tags.client_id, None))
            return get((None, DEFAULT, None)) if own is None else own
        return None


class ClientQuotas:
    def __init__(self) -> None:
        #: The quotas of users and client ids, by key.
        self.tables: Mapping[str, QuotaTable] = {key: QuotaTable() for key in CLIENT_KEYS}
        #: Whether any user or client id has a quota that counts for each request.
        self.any_client = False
        #: Whether any ip has a quota.
        self.any_ip = False
        #: Grows with each change.
        self.version = 0
        self._by_entity: dict[Entity, Mapping[str, float]] = {}
        #: The limits of addresses. Several entities may name one address; the smallest limit counts.
        self._ips: dict[str, dict[Entity, float]] = {}
        self._addresses: dict[Entity, str] = {}
        self._default_ip: float | None = None

    # -- reading

    def limit(self, key: str, user: str, client_id: str) -> Limit | None:
        """Returns what limits a client, given the name of its principal; None if nothing does."""
        table = self.tables[key]
        return table.limit(user, client_id) if table.any else None

    def ip_limit(self, ip: str) -> float | None:
        """Returns how many connections an address may make per second; None if there is no limit."""
        if not self.any_ip:
            return None
        limits = self._ips.get(address_of(ip))
        return self._default_ip if limits is None else min(limits.values())

    def of(self, entity: Entity) -> Mapping[str, float]:
        """Returns the quotas of exactly this entity."""
        return self._by_entity.get(entity, _NONE)

    def __len__(self) -> int:
        return len(self._by_entity)

    def items(self) -> ItemsView[Entity, Mapping[str, float]]:
        """All entities with their quotas."""
        return self._by_entity.items()

    # -- changing

    def replace(self, entity: Entity, limits: Mapping[str, float], *, address: str | None = None) -> None:
        """Sets all quotas of an entity. The caller has checked them (``entities.check_limit``).

        :param address: the address of an ip entity whose name is the name of a host.
        """
        if isinstance(entity.ip, str):
            address = address_of(entity.ip if address is None else address)
        if self.of(entity) == limits and (not limits or self._addresses.get(entity) == address):
            return
        if entity.ip is not None:
            self._replace_ip(entity, limits.get(CONNECTION_CREATION_RATE), address)
        for key, table in self.tables.items():
            table.replace(entity, limits.get(key))
        self.any_client = any(self.tables[key].any for key in REQUEST_KEYS)
        if limits:
            self._by_entity[entity] = dict(limits)
        else:
            self._by_entity.pop(entity, None)
        self.version += 1

    def look_up_again(self) -> None:
        """Makes the callers that keep a limit look it up again."""
        self.version += 1

    def _replace_ip(self, entity: Entity, limit: float | None, address: str | None) -> None:
        if address is None:
            self._default_ip = limit
        else:
            self._forget_ip(entity)
            if limit is not None:
                self._addresses[entity] = address
                self._ips.setdefault(address, {})[entity] = limit
        self.any_ip = bool(self._ips) or self._default_ip is not None

    def _forget_ip(self, entity: Entity) -> None:
        address = self._addresses.pop(entity, None)
        if address is not None:
            limits = self._ips[address]
            del limits[entity]
            if not limits:
                del self._ips[address]
