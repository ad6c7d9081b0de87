"""Stores the dynamic settings of a lone broker in its znode tree (``/config/brokers``), and applies them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.configs.stored_passwords import StoredPasswords
from headrace.coordination.interface import Coordination, NoNodeError
from headrace.coordination.paths import broker_config_path
from headrace.coordination.znodes import EntityConfig

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig


class LoneDynamicConfigs:
    def __init__(self, config: BrokerConfig, coordination: Coordination) -> None:
        self._config = config
        self._passwords = StoredPasswords(config)
        self._coordination = coordination

    async def load(self) -> None:
        """Applies the stored settings: those of this broker, and those of all brokers."""
        broker_id = self._config.int("broker.id")
        own = await self._stored(broker_id)
        default = await self._stored(None)
        encrypted_again = self._passwords.encrypted_again(own)
        if encrypted_again is not None:
            await self._coordination.set(broker_config_path(broker_id), EntityConfig(encrypted_again).to_json())
            own = encrypted_again
        if own or default:
            self._config.apply_dynamic(self._passwords.decrypted(own), self._passwords.decrypted(default))

    async def _stored(self, broker_id: int | None) -> Mapping[str, str]:
        try:
            data, _ = await self._coordination.get(broker_config_path(broker_id))
        except NoNodeError:
            return {}
        return EntityConfig.from_json(data).config

    async def store(self, name: str, configs: Mapping[str, str]) -> None:
        """Applies and stores settings of this broker (``name`` is its id), or of all brokers (``name`` is empty)."""
        path = broker_config_path(int(name) if name else None)
        content = EntityConfig(self._passwords.encrypted(configs, per_broker=bool(name))).to_json()
        if name:
            self._config.apply_dynamic(configs, self._config.dynamic_default)
        else:
            self._config.apply_dynamic(self._config.dynamic_broker, configs)
        if await self._coordination.exists(path) is None:
            await self._coordination.create(path, content)
        else:
            await self._coordination.set(path, content)
