"""Reads client quotas from the znode tree, follows their changes, and changes them.

``entities.py`` has the paths. A znode has Kafka's JSON: ``{"version":1,"config":{"producer_byte_rate":"1024"}}``. The
znode of a user may have SCRAM credentials, too; they stay as they are when quotas change. Every broker watches the
notifications of changed settings (``/config/changes``), and reads the entities that they name, so a change is in force
on all brokers as soon as ZooKeeper has told them. A broker that starts a new session reads all quotas again.

A change reads the znode of its entity, and writes it only if nobody has changed it since (by its version). Otherwise it
starts again. The write and its notification are one ``multi``. If an answer is lost, the change starts again: to set or
to remove the same quotas twice does no harm. A znode without settings stays, as it does in Kafka.

Quotas that cannot be read are never taken for absent. While the tree does not answer, the quotas in memory are in
force, and the follower tries again. If a znode has no quotas that can be read, its entity keeps the quotas that it has.
The name of a host in ``/config/ips`` is resolved when it is read; a name that cannot be resolved is tried again later.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.quotas.entities import (
    Entity,
    check_limit,
    entity_of_path,
    keys_of,
    limits_of,
    path_of,
    text_of,
)
from headrace.broker.start_error import StartError
from headrace.broker.tree.follower import TreeFollower
from headrace.broker.tree.reads import read_each
from headrace.coordination.interface import (
    BadVersionError,
    ConnectionLostError,
    CoordinationError,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)
from headrace.coordination.paths import CONFIG_CHANGE_PREFIX, CONFIG_CHANGES
from headrace.coordination.znodes import ConfigChange, EntityConfig, MalformedZnodeError
from headrace.protocol.errors import InvalidRequest, KafkaError, UnknownServerError
from headrace.security.ip_addresses import is_address

if TYPE_CHECKING:
    from headrace.broker.quotas.client_quotas import ClientQuotas
    from headrace.coordination.interface import Coordination
    from headrace.runtime.clock import Clock

logger = getLogger(__name__)

#: Returns the address of a host. Raises OSError, or ValueError for what is no name, if there is none.
Resolve = Callable[[str], Awaitable[str]]

_CHANGE_NAME = CONFIG_CHANGE_PREFIX.removeprefix(f"{CONFIG_CHANGES}/")
#: How often a change starts again because other brokers were faster. One of them succeeds each time.
_MAX_ATTEMPTS = 100
#: When the names of hosts that could not be resolved are tried again.
_RESOLVE_AGAIN_AFTER_S = 60.0
_RACES = (BadVersionError, NodeExistsError, NoNodeError, ConnectionLostError)


#: New limits by their keys; None removes a quota.
Changes = Mapping[str, float | None]


async def resolve_by_dns(host: str) -> str:
    """Returns the first address of a host.

    :raises OSError: if the name cannot be resolved.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


async def start_quotas(coordination: Coordination, clock: Clock, quotas: ClientQuotas) -> StoredQuotas:
    """Reads all quotas, and follows their changes.

    :raises StartError: if the tree does not answer.
    """
    stored = StoredQuotas(coordination, clock, quotas)
    try:
        await stored.load()
    except CoordinationError as error:
        raise StartError(f"the client quotas cannot be read: {error}") from None
    stored.start()
    return stored


class StoredQuotas:
    def __init__(
        self, coordination: Coordination, clock: Clock, quotas: ClientQuotas, *, resolve: Resolve = resolve_by_dns
    ) -> None:
        self._coordination = coordination
        self._quotas = quotas
        self._resolve = resolve
        self._follower = TreeFollower(coordination, clock, "client quotas", read_all=self._read_all)
        self._follower.watch(CONFIG_CHANGES, _CHANGE_NAME, self._apply_notification)
        self._resolve_again: asyncio.TimerHandle | None = None

    # -- life cycle

    async def load(self) -> None:
        """Reads all quotas. Changes from now on are noticed, and applied after :meth:`start`.

        :raises CoordinationError: if the tree does not answer.
        """
        await self._follower.load()

    def start(self) -> None:
        self._follower.start()

    async def stop(self) -> None:
        if self._resolve_again is not None:
            self._resolve_again.cancel()
        await self._follower.stop()

    # -- reading

    async def catch_up(self) -> None:
        """Applies all changes that other brokers have announced. Without a tree, what is in memory is in force."""
        try:
            await self._follower.catch_up()
        except CoordinationError as error:
            logger.warning("changed client quotas cannot be read now: %r", error)

    async def _apply_notification(self, content: bytes) -> None:
        try:
            path = ConfigChange.from_json(content).entity_path
        except MalformedZnodeError as error:
            logger.warning("a notification of changed settings cannot be read, so all quotas are read again: %s", error)
            self._follower.read_again()
            return
        entity = entity_of_path(path)
        if entity is not None:
            await self._read(entity)

    async def _read_all(self) -> None:
        stored = await self._entities()
        for gone in {entity for entity, _ in self._quotas.items()} - set(stored):
            self._quotas.replace(gone, {})
        async for _ in read_each(self._read, stored):
            pass

    async def _entities(self) -> list[Entity]:
        """Returns the entities of all znodes that may have quotas."""
        users = [f"users/{name}" for name in await self._children("users")]
        paths = [*users]
        async for parent, names in read_each(self._children, [f"{user}/clients" for user in users]):
            paths += [f"{parent}/{name}" for name in names]
        for parent in ("clients", "ips"):
            paths += [f"{parent}/{name}" for name in await self._children(parent)]
        return [entity for path in paths if (entity := entity_of_path(path)) is not None]

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._coordination.children(f"/config/{path}")
        except NoNodeError:
            return []

    async def _read(self, entity: Entity) -> None:
        """Puts the quotas of an entity in force. If they cannot be read, those in memory stay in force."""
        try:
            content, _ = await self._coordination.get(_znode_of(entity))
        except NoNodeError:
            content = b""
        try:
            limits = limits_of(entity, EntityConfig.from_json(content).config)
        except (MalformedZnodeError, ValueError) as error:
            logger.error(
                "the quotas of %s stay as they are, because %s cannot be read: %s", entity, _znode_of(entity), error
            )
            return
        await self._put(entity, limits)

    async def _put(self, entity: Entity, limits: Mapping[str, float]) -> None:
        address: str | None = None
        if isinstance(entity.ip, str) and limits and not is_address(entity.ip):
            try:
                address = await self._resolve(entity.ip)
            except (OSError, ValueError) as error:
                logger.error("the quotas of %s stay as they are, because the host has no address: %s", entity, error)
                self._try_to_resolve_later()
                return
        self._quotas.replace(entity, limits, address=address)

    def _try_to_resolve_later(self) -> None:
        if self._resolve_again is not None:
            self._resolve_again.cancel()
        loop = asyncio.get_running_loop()
        self._resolve_again = loop.call_later(_RESOLVE_AGAIN_AFTER_S, self._follower.read_again)

    # -- changing

    async def check(self, entity: Entity, changes: Changes) -> None:
        """
        :raises InvalidRequest: if the entity cannot have these quotas, or its host has no address.
        """
        if isinstance(entity.ip, str) and not is_address(entity.ip):
            try:
                await self._resolve(entity.ip)
            except (OSError, ValueError):
                raise InvalidRequest(f"{entity.ip} is not a valid IP or resolvable host.") from None
        for key, limit in changes.items():
            if limit is not None:
                check_limit(entity, key, limit)

    async def change(self, wanted: Mapping[Entity, Changes]) -> dict[Entity, KafkaError]:
        """Changes quotas that were checked. They are in force on this broker when the method returns.

        The follower reads the notifications of all these changes together. The caller passes a few dozen entities at
        a time, because the event loop may serve nobody else meanwhile.

        :returns: the errors of the entities whose quotas could not be stored.
        """
        errors: dict[Entity, KafkaError] = {}
        async with self._follower.lock:
            for entity, changes in wanted.items():
                try:
                    await self._change(entity, changes)
                except KafkaError as error:
                    errors[entity] = error
        return errors

    async def _change(self, entity: Entity, changes: Changes) -> None:
        """
        :raises KafkaError: if the quotas cannot be stored.
        """
        for _ in range(_MAX_ATTEMPTS):
            try:
                await self._try_change(entity, changes)
                await self._read(entity)
                return
            except _RACES as error:
                logger.debug("the change of the quotas of %s starts again: %r", entity, error)
            except CoordinationError as error:
                raise UnknownServerError(f"the quotas of {entity} cannot be stored now: {error!r}") from error
        raise UnknownServerError(f"the quotas of {entity} change too often; try again")

    async def _try_change(self, entity: Entity, changes: Changes) -> None:
        path, stat = _znode_of(entity), None
        stored: Mapping[str, str] = {}
        try:
            content, stat = await self._coordination.get(path)
            stored = EntityConfig.from_json(content).config
        except NoNodeError:
            pass
        except MalformedZnodeError as error:
            raise InvalidRequest(
                f"the settings in {path} cannot be read, and must be repaired first: {error}"
            ) from None
        wanted = _changed(stored, changes, keys_of(entity))
        if wanted == stored:
            return
        data = EntityConfig(wanted).to_json()
        announce = Create(CONFIG_CHANGE_PREFIX, ConfigChange(path_of(entity)).to_json(), sequence=True)
        write: list[Operation]
        if stat is None:
            write = [*await self._missing_parents(entity), Create(path, data)]
        else:
            write = [SetData(path, data, stat.version)]
        await self._coordination.multi([*write, announce])

    async def _missing_parents(self, entity: Entity) -> list[Operation]:
        """Returns the operations that create the parents of an entity's znode: a client id of a user has two."""
        path, missing = _znode_of(entity), list[Operation]()
        parts = path.split("/")
        for depth in range(2, len(parts)):
            parent = "/".join(parts[:depth])
            if await self._coordination.exists(parent) is None:
                missing.append(Create(parent))
        return missing


def _changed(stored: Mapping[str, str], changes: Changes, keys: Iterable[str]) -> Mapping[str, str]:
    """Returns the settings of an entity with changed quotas. A request cannot remove other settings."""
    wanted = dict(stored)
    for key, limit in changes.items():
        if limit is not None:
            wanted[key] = text_of(key, limit)
        elif key in keys:
            wanted.pop(key, None)
    return wanted


def _znode_of(entity: Entity) -> str:
    return f"/config/{path_of(entity)}"
