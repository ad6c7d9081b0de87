"""Reads and writes the settings in the tree, and applies changes: of topics, groups, users, client metrics, brokers.

A broker that changes ``/config/TYPE/NAME`` then adds a sequential znode to ``/config/changes`` that names the entity.
Every broker watches ``/config/changes``, reads the named entities and applies their settings, in order. A notification
says only that something has changed, so it does no harm to apply one twice, or to read it late. Notifications are
removed when they are 15 minutes old. A broker that was away for longer, or whose session was lost, reads all settings.

At the start a broker reads all settings before it opens the logs. There is no notification for a topic that is created
later: the broker reads its settings together with the topic's first replica (:meth:`ConfigChanges.read_new_topic`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.authentication.scram_users import change_user
from headrace.broker.configs.stored_passwords import StoredPasswords
from headrace.broker.telemetry.subscriptions import ENTITY_TYPE as CLIENT_METRICS
from headrace.broker.tree.follower import TreeFollower
from headrace.broker.tree.reads import read_each
from headrace.coordination import retried_changes
from headrace.coordination.interface import NodeExistsError, NoNodeError
from headrace.coordination.paths import (
    CLIENT_METRICS_CONFIGS,
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    DEFAULT_ENTITY,
    GROUP_CONFIGS,
    USER_CONFIGS,
    config_path,
)
from headrace.coordination.znodes import ConfigChange, EntityConfig, MalformedZnodeError
from headrace.protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.broker.authentication.scram_users import Change, ScramUsers
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.group_overrides import GroupConfigs
    from headrace.broker.telemetry.subscriptions import Subscriptions
    from headrace.coordination.interface import Coordination
    from headrace.runtime.clock import Clock

logger = getLogger(__name__)

_CHANGE_NAME = CONFIG_CHANGE_PREFIX.removeprefix(f"{CONFIG_CHANGES}/")


class ConfigChanges:
    def __init__(
        self,
        config: BrokerConfig,
        group_configs: GroupConfigs,
        scram_users: ScramUsers,
        client_metrics: Subscriptions,
        coordination: Coordination,
        clock: Clock,
        *,
        on_topic_changed: Callable[[str, Mapping[str, str]], object],
        on_unclean_election_changed: Callable[[], object],
    ) -> None:
        """
        :param on_topic_changed: is called with a topic and its settings when they have changed.
        :param on_unclean_election_changed: is called when the broker's ``unclean.leader.election.enable`` has changed.
        """
        self._config = config
        self._passwords = StoredPasswords(config)
        self._group_configs = group_configs
        self._scram_users = scram_users
        self._client_metrics = client_metrics
        self._coordination = coordination
        self._on_topic_changed = on_topic_changed
        self._on_unclean_election_changed = on_unclean_election_changed
        self._topics: dict[str, Mapping[str, str]] = {}
        self._follower = TreeFollower(coordination, clock, "settings", read_all=self._read_all)
        self._notifications = self._follower.watch(CONFIG_CHANGES, _CHANGE_NAME, self._apply_notification)

    async def load(self) -> None:
        """Reads all settings. Changes from now on are noticed, and applied after :meth:`start`.

        :raises MalformedZnodeError: if the broker's own settings cannot be read. A key store may be among them.
        """
        own, _ = await self._broker_settings()
        encrypted_again = self._passwords.encrypted_again(own)
        if encrypted_again is not None:
            await self._write("brokers", self._own_name, encrypted_again)
        await self._follower.load()

    def start(self) -> None:
        self._follower.start()

    def read_again(self) -> None:
        """Reads all settings soon, because those in memory may be outdated: a read has failed."""
        self._follower.read_again()

    async def stop(self) -> None:
        await self._follower.stop()

    # -- reading and writing

    def of_topic(self, name: str) -> Mapping[str, str]:
        """The topic's settings in memory."""
        return self._topics.get(name, {})

    async def read_new_topic(self, name: str) -> Mapping[str, str]:
        """Reads the settings of a topic that is new on this broker."""
        self._topics[name] = configs = await self.read("topics", name)
        return configs

    def topic_deleted(self, name: str) -> None:
        self._topics.pop(name, None)

    async def read(self, kind: str, name: str) -> Mapping[str, str]:
        """The settings of an entity in the tree."""
        try:
            return await self._read_strictly(kind, name)
        except MalformedZnodeError as error:
            logger.error("the settings of %s/%s are ignored, because they cannot be read: %s", kind, name, error)
            return {}

    async def _read_strictly(self, kind: str, name: str) -> Mapping[str, str]:
        """
        :raises MalformedZnodeError: if the znode has no settings.
        """
        try:
            data, _ = await self._coordination.get(config_path(kind, name))
        except NoNodeError:
            return {}
        return EntityConfig.from_json(data).config

    async def write(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        """Stores settings. They are in force on this broker when the method returns, and on the others soon.

        :raises InvalidRequest: if a broker's settings have a password that cannot be encrypted.
        """
        if kind == "brokers":
            configs = self._passwords.encrypted(configs, per_broker=name != DEFAULT_ENTITY)
        await self._write(kind, name, configs)
        await self._announce(kind, name)

    async def _write(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        path, content = config_path(kind, name), EntityConfig(configs).to_json()
        try:
            await retried_changes.set_data(self._coordination, path, content)
        except NoNodeError:
            try:
                await retried_changes.create_persistent(self._coordination, path, content)
            except NodeExistsError:
                await retried_changes.set_data(self._coordination, path, content)

    async def change_user(self, entity: str, change: Change) -> None:
        """Stores what a function makes of the settings of a user."""
        await change_user(self._coordination, entity, change)
        await self._announce("users", entity)

    async def _announce(self, kind: str, name: str) -> None:
        change = ConfigChange(f"{kind}/{name}")
        await retried_changes.create_at_least_once(self._coordination, CONFIG_CHANGE_PREFIX, change.to_json())
        await self._apply(kind, name)

    # -- following changes

    async def _read_all(self) -> None:
        names = await self._coordination.children("/config/topics")
        found = await asyncio.gather(*(self.read("topics", name) for name in names))
        before, self._topics = self._topics, dict(zip(names, found, strict=True))
        for name, configs in self._topics.items():
            if before.get(name, {}) != configs:
                self._on_topic_changed(name, configs)
        for name in await self._coordination.children(GROUP_CONFIGS):
            await self._apply("groups", name)
        await self._read_users()
        subscriptions = await self._coordination.children(CLIENT_METRICS_CONFIGS)
        self._client_metrics.keep_only(subscriptions)
        for name in subscriptions:
            await self._apply(CLIENT_METRICS, name)
        await self._apply("brokers", DEFAULT_ENTITY)

    async def _read_users(self) -> None:
        users = await self._coordination.children(USER_CONFIGS)
        self._scram_users.keep_only(users)
        async for name, configs in read_each(partial(self.read, "users"), users):
            self._scram_users.put(name, configs)

    async def _apply_notification(self, content: bytes) -> None:
        try:
            kind, _, name = ConfigChange.from_json(content).entity_path.partition("/")
        except MalformedZnodeError as error:
            logger.warning("a notification of changed settings is ignored, because it cannot be read: %s", error)
            return
        await self._apply(kind, name)

    # -- applying

    async def _apply(self, kind: str, name: str) -> None:
        if kind == "topics":
            self._on_topic_changed(name, await self.read_new_topic(name))
        elif kind == "groups":
            self._group_configs.put(name, await self.read(kind, name))
        elif kind == CLIENT_METRICS:
            self._client_metrics.put(name, await self.read(kind, name))
        elif kind == "brokers" and name in (DEFAULT_ENTITY, self._own_name):
            await self._apply_broker_settings()
        elif kind == "users":
            self._scram_users.put(name, await self.read(kind, name))

    async def _broker_settings(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The settings of this broker, and those of all brokers.

        :raises MalformedZnodeError: if the tree has settings that cannot be read.
        """
        return (
            await self._read_strictly("brokers", self._own_name),
            await self._read_strictly("brokers", DEFAULT_ENTITY),
        )

    async def _apply_broker_settings(self) -> None:
        try:
            own, default = await self._broker_settings()
        except MalformedZnodeError as error:
            logger.error("the broker keeps its present settings, because those in the tree cannot be read: %s", error)
            return
        try:
            changed = self._config.apply_dynamic(self._passwords.decrypted(own), self._passwords.decrypted(default))
        except InvalidRequest as error:
            logger.error("the tree has broker settings that cannot be applied: %s", error)
            return
        if "unclean.leader.election.enable" in changed:
            self._on_unclean_election_changed()

    @property
    def _own_name(self) -> str:
        return str(self._config.int("broker.id"))
