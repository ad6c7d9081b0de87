"""Holds the settings of single groups in memory. Coordinators read them at every heartbeat.

The settings are stored under ``/config/groups`` in the znode tree. A group's id may be any text, so its name in the
tree is percent-encoded, as Kafka encodes the names of users.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.coordination.interface import Coordination, NodeExistsError
from headrace.coordination.paths import GROUP_CONFIGS, config_path
from headrace.coordination.znodes import EntityConfig

_NOTHING: Mapping[str, str] = {}


class GroupConfigs:
    def __init__(self) -> None:
        self._groups: dict[str, Mapping[str, str]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def of(self, group_id: str) -> Mapping[str, str]:
        return self._groups.get(group_id, _NOTHING)

    def put(self, entity: str, configs: Mapping[str, str]) -> None:
        """Sets the settings of a group, given its name in the tree."""
        if configs:
            self._groups[group_of(entity)] = configs
        else:
            self._groups.pop(group_of(entity), None)

    # -- for a broker that is not in a cluster

    async def load(self, coordination: Coordination) -> None:
        for entity in await coordination.children(GROUP_CONFIGS):
            data, _ = await coordination.get(config_path("groups", entity))
            self.put(entity, EntityConfig.from_json(data).config)

    async def store(self, coordination: Coordination, entity: str, configs: Mapping[str, str]) -> None:
        path, content = config_path("groups", entity), EntityConfig(configs).to_json()
        try:
            await coordination.create(path, content)
        except NodeExistsError:
            await coordination.set(path, content)
        self.put(entity, configs)


def entity_of(group_id: str) -> str:
    from urllib.parse import quote

    return quote(group_id, safe="").replace(".", "%2E")


def group_of(entity: str) -> str:
    from urllib.parse import unquote

    return unquote(entity)
