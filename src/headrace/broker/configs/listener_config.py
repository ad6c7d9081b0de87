"""The settings of one listener, and of one SASL mechanism on the listener.

The name of such a setting has a prefix: ``listener.name.internal.ssl.keystore.location``, or
``listener.name.internal.plain.sasl.jaas.config``. Names of listeners and mechanisms are in lower case. The strongest
name that is set counts: with listener and mechanism, with the listener, without a prefix. Each call reads the present
value, so a change at run time is seen.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.keys import Value

LISTENER_PREFIX = "listener.name."


class ListenerConfig:
    """Reads values as :class:`BrokerConfig` does. :meth:`BrokerConfig.of_listener` makes it."""

    def __init__(self, config: BrokerConfig, listener: builtins.str, mechanism: builtins.str | None) -> None:
        self._config = config
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        self._prefixes = (prefix,) if mechanism is None else (f"{prefix}{mechanism.lower()}.", prefix)
        #: What :meth:`name_of` has found since the last change of a setting. Each new connection asks for several.
        self._names: dict[builtins.str, builtins.str] = {}

    def name_of(self, name: builtins.str) -> builtins.str:
        """Returns the strongest name under which a setting is set; the name itself if it is set nowhere."""
        found = self._names.get(name)
        if found is None:
            found = next((own for prefix in self._prefixes if (own := prefix + name) in self._config), name)
            self._names[name] = found
        return found

    def settings_changed(self) -> None:
        self._names.clear()

    def __getitem__(self, name: builtins.str) -> Value:
        return self._config[self.name_of(name)]

    def int(self, name: builtins.str) -> builtins.int:
        return self._config.int(self.name_of(name))

    def str(self, name: builtins.str) -> builtins.str:
        return self._config.str(self.name_of(name))

    def optional_str(self, name: builtins.str) -> builtins.str | None:
        return self._config.optional_str(self.name_of(name))

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        return self._config.list(self.name_of(name))
