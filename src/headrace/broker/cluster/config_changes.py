"""Settings that are kept in the tree: of topics, groups, this broker, and all brokers; and how changes get round.

Whoever changes ``/config/TYPE/NAME`` then adds a sequential znode to ``/config/changes`` that names it. Every broker
watches those, reads what is named and applies it, in order. A notification says only that something has changed, so one
that is applied twice, or read too late, does no harm. They are removed when they are 15 minutes old: a broker that was
away for longer, or whose session was lost, reads everything anew.

At the start all settings are read before the logs are opened. Of a topic that is made later no notification comes: its
settings are read with its first replica here (:meth:`ConfigChanges.learn`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.cluster.unenforced_rules import QUOTA_ENTITIES, has_quota, warn_of_quota
from headrace.coordination import retried_changes
from headrace.coordination.interface import CoordinationError, NodeExistsError, NoNodeError, WatchEvent
from headrace.coordination.paths import CONFIG_CHANGE_PREFIX, CONFIG_CHANGES, DEFAULT_ENTITY, GROUP_CONFIGS, config_path
from headrace.coordination.znodes import ConfigChange, EntityConfig, MalformedZnodeError
from headrace.event_loop import cancel_and_wait
from headrace.protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

logger = getLogger(__name__)

_KEPT_MS = 15 * 60_000
_AGAIN_AFTER_S = 1.0
_PREFIX_LENGTH = len(CONFIG_CHANGE_PREFIX) - len(CONFIG_CHANGES) - 1
_NEVER = -1


class ConfigChanges:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._coordination = broker.coordination
        self._topics: dict[str, Mapping[str, str]] = {}
        #: The number of the last notification that was applied.
        self._applied = _NEVER
        self._is_all_wanted = True
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """All settings; from now on changes are noticed, and applied once :meth:`start` was called."""
        await self._look()

    def start(self) -> None:
        self._task = self._broker.loop.create_task(self._keep_up())

    def read_again(self) -> None:
        """What we know may be wrong: the session is another one, without watches; or something could not be read."""
        self._is_all_wanted = True
        self._wake.set()

    async def stop(self) -> None:
        if self._task is not None:
            await cancel_and_wait([self._task])

    # -- what others ask

    def of_topic(self, name: str) -> Mapping[str, str]:
        """As far as we have heard."""
        return self._topics.get(name, {})

    async def learn(self, name: str) -> Mapping[str, str]:
        """The settings of a topic that is new here."""
        self._topics[name] = configs = await self.read("topics", name)
        return configs

    def forget(self, name: str) -> None:
        """The topic is deleted."""
        self._topics.pop(name, None)

    async def read(self, kind: str, name: str) -> Mapping[str, str]:
        """As they are in the tree."""
        try:
            data, _ = await self._coordination.get(config_path(kind, name))
            return EntityConfig.from_json(data).config
        except NoNodeError:
            return {}
        except MalformedZnodeError as error:
            logger.error("settings of %s/%s are taken as none: %s", kind, name, error)
            return {}

    async def write(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        """In force here when it returns, and on the other brokers soon."""
        path, content = config_path(kind, name), EntityConfig(configs).to_json()
        try:
            await retried_changes.set_data(self._coordination, path, content)
        except NoNodeError:
            try:
                await retried_changes.create_persistent(self._coordination, path, content)
            except NodeExistsError:
                await retried_changes.set_data(self._coordination, path, content)
        change = ConfigChange(f"{kind}/{name}")
        await retried_changes.create_at_least_once(self._coordination, CONFIG_CHANGE_PREFIX, change.to_json())
        await self._apply(kind, name)

    # -- keeping up

    async def _keep_up(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._look()
            except CoordinationError as error:
                logger.warning("changed settings cannot be read now: %r", error)
                await asyncio.sleep(_AGAIN_AFTER_S)
                self.read_again()
            except Exception:
                logger.exception("changed settings could not be applied")

    def _told(self, _: WatchEvent) -> None:
        self._wake.set()

    async def _look(self) -> None:
        names = await self._coordination.children(CONFIG_CHANGES, watch=self._told)
        changes = {number: name for name in names if (number := _number(name)) is not None}
        if self._is_all_wanted:
            self._is_all_wanted = False
            await self._read_all()
            self._applied = max(changes, default=self._applied)
        for number in sorted(changes):
            if number > self._applied:
                await self._follow(f"{CONFIG_CHANGES}/{changes[number]}")
                self._applied = number
        await self._purge([f"{CONFIG_CHANGES}/{changes[number]}" for number in sorted(changes)])

    async def _read_all(self) -> None:
        names = await self._coordination.children("/config/topics")
        found = await asyncio.gather(*(self.read("topics", name) for name in names))
        before, self._topics = self._topics, dict(zip(names, found, strict=True))
        for name, configs in self._topics.items():
            if before.get(name, {}) != configs:
                self._topic_configured(name, configs)
        for name in await self._coordination.children(GROUP_CONFIGS):
            await self._apply("groups", name)
        await self._apply("brokers", DEFAULT_ENTITY)

    async def _follow(self, path: str) -> None:
        try:
            data, _ = await self._coordination.get(path)
            kind, _, name = ConfigChange.from_json(data).entity_path.partition("/")
        except NoNodeError:
            return  # old enough for somebody to have removed it
        except MalformedZnodeError as error:
            logger.warning("%s is passed over: %s", path, error)
            return
        await self._apply(kind, name)

    async def _purge(self, paths: list[str]) -> None:
        """The oldest first, up to the first that is young."""
        for path in paths:
            stat = await self._coordination.exists(path)
            if stat is not None and self._broker.clock.wall_ms() - stat.ctime_ms <= _KEPT_MS:
                return
            with suppress(CoordinationError):
                await self._coordination.delete(path)

    # -- applying

    async def _apply(self, kind: str, name: str) -> None:
        if kind == "topics":
            self._topic_configured(name, await self.learn(name))
        elif kind == "groups":
            self._broker.group_configs.put(name, await self.read(kind, name))
        elif kind == "brokers" and name in (DEFAULT_ENTITY, str(self._broker.broker_id)):
            await self._broker_configured()
        elif kind in QUOTA_ENTITIES and has_quota(await self.read(kind, name)):
            warn_of_quota(config_path(kind, name))

    def _topic_configured(self, name: str, configs: Mapping[str, str]) -> None:
        member = self._broker.cluster
        if member is not None and member.is_open:
            member.replicas.topic_configured(name, configs)
            member.controller.unclean_election_changed(name)

    async def _broker_configured(self) -> None:
        own, default = await asyncio.gather(
            self.read("brokers", str(self._broker.broker_id)), self.read("brokers", DEFAULT_ENTITY)
        )
        try:
            changed = self._broker.config.apply_dynamic(own, default)
        except InvalidRequest as error:
            logger.error("the tree has settings of brokers that cannot be applied: %s", error)
            return
        member = self._broker.cluster
        if "unclean.leader.election.enable" in changed and member is not None and member.is_open:
            member.controller.unclean_election_changed()


def _number(name: str) -> int | None:
    text = name[_PREFIX_LENGTH:]
    return int(text) if text.isdecimal() else None
