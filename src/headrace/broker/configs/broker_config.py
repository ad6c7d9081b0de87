"""Holds the values of a broker's settings.

The registry (``registry.py``) says which settings there are. A value comes from the strongest layer that has it: the
dynamic settings of this broker, the dynamic settings of the cluster, the file and options with which the broker was
started, the default. The dynamic layers change while the broker runs, through :meth:`BrokerConfig.apply_dynamic`. It
first checks everything, then replaces all values at once, then calls the registered callbacks. It must be called on the
event loop's thread. Reading a value is one dictionary access.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from logging import getLogger
from typing import NamedTuple

from headrace.broker.configs.dynamic import unusable_settings
from headrace.broker.configs.keys import Value
from headrace.broker.configs.listener_config import ListenerConfig
from headrace.broker.configs.listeners import Listeners, parse_listeners
from headrace.broker.configs.refusals import refusal_line, refused_changes, refused_settings
from headrace.broker.configs.registry import BROKER_KEYS, broker_key, without_meaning
from headrace.broker.configs.rules import broker_problems, given_id_problem
from headrace.properties import ConfigError
from headrace.protocol.errors import InvalidRequest

logger = getLogger(__name__)


class _Layers(NamedTuple):
    """The three layers, and everything that follows from them. Replaced as a whole."""

    static: Mapping[str, str]
    dynamic_broker: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    values: dict[str, Value]
    listeners: Listeners
    #: Dynamic settings that the broker does not use, with their texts. Apache Kafka, for example, may have stored them.
    not_in_force: Mapping[str, str]
    #: Why the broker does not use them: one line each. The lines show no secrets.
    reasons: Sequence[str]

    def __repr__(self) -> str:
        return f"_Layers({len(self.values)} values)"  # the values may be secrets


class BrokerConfig:
    """The settings of one broker. :meth:`load` makes it."""

    def __init__(self, layers: _Layers, unknown: Mapping[str, str], ignored: Mapping[str, str]) -> None:
        self._layers = layers
        self._listener_configs: dict[tuple[builtins.str, builtins.str | None], ListenerConfig] = {}
        self._watchers: dict[builtins.str, builtins.list[Callable[[Value], None]]] = {}
        self._any_watchers: builtins.list[Callable[[frozenset[builtins.str]], None]] = []
        self._checks: builtins.list[Callable[[BrokerConfig], object]] = []
        self._sent_again_watchers: builtins.list[Callable[[], Awaitable[None]]] = []
        #: A change of stored settings holds this lock from reading the settings until the new ones are in force.
        self.change_lock = asyncio.Lock()
        #: Unknown names, which are perhaps typing errors, with their values.
        self.unknown = unknown
        #: Names that Apache Kafka has and that are ignored here, with the reason.
        self.ignored = ignored

    @classmethod
    def load(cls, properties: Mapping[builtins.str, builtins.str]) -> BrokerConfig:
        """Makes the settings of a broker from the names and values of a file and of options.

        :raises ConfigError: with one line per mistake.
        """
        stripped = {name: text.strip() for name, text in properties.items()}
        refused = refused_settings(stripped)
        if refused:
            raise ConfigError(refusal_line(refused))
        static = {name: text for name, text in stripped.items() if broker_key(name) is not None}
        strange = {name: text for name, text in stripped.items() if name not in static}
        ignored = {name: reason for name in strange if (reason := without_meaning(name)) is not None}
        unknown = {name: text for name, text in strange.items() if name not in ignored}
        layers = _resolve(_with_both_ids(static), {}, {})
        problem = given_id_problem(layers.values)
        if problem is not None:
            raise ConfigError(problem)
        return cls(layers, unknown, ignored)

    # -- the layers

    @property
    def static(self) -> Mapping[builtins.str, builtins.str]:
        return self._layers.static

    @property
    def dynamic_broker(self) -> Mapping[builtins.str, builtins.str]:
        return self._layers.dynamic_broker

    @property
    def dynamic_default(self) -> Mapping[builtins.str, builtins.str]:
        return self._layers.dynamic_default

    @property
    def not_in_force(self) -> Mapping[builtins.str, builtins.str]:
        """Stored dynamic settings that the broker does not use (``table_refused.py``, ``dynamic.py``)."""
        return self._layers.not_in_force

    def all_names(self) -> builtins.list[builtins.str]:
        """Returns the names of the registry, and all other names that are set: at start, later, or per listener."""
        layers = self._layers
        others = (layers.static, self.unknown, self.ignored, layers.dynamic_default, layers.dynamic_broker)
        return [*dict.fromkeys([*BROKER_KEYS, *chain.from_iterable(others)])]

    # -- values that follow from several settings

    @property
    def listeners(self) -> Listeners:
        return self._layers.listeners

    def of_listener(self, listener: builtins.str, mechanism: builtins.str | None = None) -> ListenerConfig:
        """The settings of one listener (and of one SASL mechanism on it), which may have values of their own."""
        found = self._listener_configs.get((listener, mechanism))
        if found is None:
            found = self._listener_configs[listener, mechanism] = ListenerConfig(self, listener, mechanism)
        return found

    @property
    def is_in_cluster(self) -> builtins.bool:
        """Whether the broker shares a ZooKeeper with other brokers."""
        return builtins.bool(self.optional_str("zookeeper.connect"))

    @property
    def broker_id(self) -> builtins.int | None:
        """node.id or broker.id; None if neither is set."""
        number = max(self.int("node.id"), self.int("broker.id"))
        return number if number >= 0 else None

    @property
    def log_dirs(self) -> tuple[builtins.str, ...]:
        """The data folders of log.dirs, else of log.dir; empty if neither is set."""
        return self.list("log.dirs") or self.list("log.dir")

    def set_broker_id(self, broker_id: builtins.int) -> None:
        """Sets the id that the broker has chosen, because none is configured."""
        assert self.broker_id is None
        static = {**self._layers.static, **dict.fromkeys(_ID_NAMES, builtins.str(broker_id))}
        self._layers = _resolve(static, self._layers.dynamic_broker, self._layers.dynamic_default)

    # -- changes

    def on_change(self, name: builtins.str, callback: Callable[[Value], None]) -> None:
        """Calls back with the new value whenever the value of one setting has changed."""
        assert name in BROKER_KEYS, name
        self._watchers.setdefault(name, []).append(callback)

    def on_any_change(self, callback: Callable[[frozenset[builtins.str]], None]) -> None:
        """Calls back with the names of all settings that have changed together."""
        self._any_watchers.append(callback)

    def add_check(self, check: Callable[[BrokerConfig], object]) -> None:
        """Calls a check before new settings of this broker are stored. It gets all settings as they will be.

        The check raises ConfigError to refuse them. It changes nothing, and is called on a thread.
        """
        self._checks.append(check)

    def remove_callbacks(self, *callbacks: Callable[..., object]) -> None:
        """Does not call these callbacks and checks any more."""
        self._any_watchers = [each for each in self._any_watchers if each not in callbacks]
        self._checks = [each for each in self._checks if each not in callbacks]
        self._sent_again_watchers = [each for each in self._sent_again_watchers if each not in callbacks]

    def on_sent_again(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Calls back when a client has set settings of this broker, also if no value has changed."""
        self._sent_again_watchers.append(callback)

    async def sent_again(self) -> None:
        for callback in tuple(self._sent_again_watchers):
            await callback()

    def snapshot(self) -> BrokerConfig:
        """Returns the present settings, for another thread. They do not change."""
        return BrokerConfig(self._layers, self.unknown, self.ignored)

    def candidate(
        self, broker_overrides: Mapping[builtins.str, builtins.str], *, per_broker: builtins.bool
    ) -> BrokerConfig:
        """Returns the settings as they will be with these dynamic settings, of this broker or of the cluster.

        :raises ConfigError: if the settings contradict each other, or a check refuses them.
        """
        own, default = (
            (broker_overrides, self.dynamic_default) if per_broker else (self.dynamic_broker, broker_overrides)
        )
        candidate = BrokerConfig(self.with_dynamic(own, default), self.unknown, self.ignored)
        if per_broker:
            for check in self._checks:
                check(candidate)
        return candidate

    def apply_dynamic(
        self,
        broker_overrides: Mapping[builtins.str, builtins.str],
        default_overrides: Mapping[builtins.str, builtins.str],
    ) -> set[builtins.str]:
        """Replaces the dynamic layers, and returns the names of the settings whose values have changed.

        A setting that may not change at run time, or whose value is not valid, is not used, and an error is logged.

        :raises InvalidRequest: if the settings contradict each other. Nothing changes then.
        """
        try:
            layers = self.with_dynamic(broker_overrides, default_overrides)
        except ConfigError as error:
            raise InvalidRequest(builtins.str(error)) from None
        before, self._layers = self._layers, layers
        for listener_config in self._listener_configs.values():
            listener_config.settings_changed()
        if layers.reasons and layers.reasons != before.reasons:
            logger.error("the broker does not use these stored settings: %s", "; ".join(layers.reasons))
        names = {*before.values, *layers.values}
        changed = {name for name in names if before.values.get(name) != layers.values.get(name)}
        self._call_back(changed)
        return changed

    def with_dynamic(
        self,
        broker_overrides: Mapping[builtins.str, builtins.str],
        default_overrides: Mapping[builtins.str, builtins.str],
    ) -> _Layers:
        """Returns the layers with these dynamic settings.

        :raises ConfigError: if the settings contradict each other.
        """
        return _resolve(self._layers.static, dict(broker_overrides), dict(default_overrides))

    def _call_back(self, changed: set[builtins.str]) -> None:
        for name in sorted(changed):
            for callback in self._watchers.get(name, ()):
                callback(self._layers.values[name])
        if changed:
            for watcher in tuple(self._any_watchers):
                watcher(frozenset(changed))

    # -- values by Kafka's name. These methods come last, because their names hide the builtin types.

    def __contains__(self, name: builtins.str) -> builtins.bool:
        """Whether the setting is in the registry, or is set with a listener's prefix."""
        return name in self._layers.values

    def __getitem__(self, name: builtins.str) -> Value:
        return self._layers.values[name]

    def optional_int(self, name: builtins.str) -> builtins.int | None:
        value = self._layers.values[name]
        assert value is None or isinstance(value, builtins.int), name
        return value

    def optional_str(self, name: builtins.str) -> builtins.str | None:
        value = self._layers.values[name]
        assert value is None or isinstance(value, builtins.str), name
        return value

    def int(self, name: builtins.str) -> builtins.int:
        value = self._layers.values[name]
        assert isinstance(value, builtins.int), name
        return value

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self._layers.values[name]
        assert isinstance(value, builtins.bool), name
        return value

    def float(self, name: builtins.str) -> builtins.float:
        value = self._layers.values[name]
        assert isinstance(value, builtins.float), name
        return value

    def str(self, name: builtins.str) -> builtins.str:
        value = self._layers.values[name]
        assert isinstance(value, builtins.str), name
        return value

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        """Returns the items of a list; an empty tuple if the setting is not set."""
        value = self._layers.values[name]
        assert value is None or isinstance(value, tuple), name
        return value or ()


def _resolve(
    static: Mapping[str, str], dynamic_broker: Mapping[str, str], dynamic_default: Mapping[str, str]
) -> _Layers:
    """Computes the values of three layers.

    :raises ConfigError: with one line per mistake.
    """
    dynamic, reasons = _used(static, dynamic_broker, dynamic_default)
    given = {**static, **dynamic}
    not_in_force = {n: text for n, text in {**dynamic_default, **dynamic_broker}.items() if n not in dynamic}
    values: dict[str, Value] = dict(_DEFAULTS)
    problems: list[str] = []
    for name, text in given.items():
        key = broker_key(name)
        if key is None:
            continue
        try:
            values[name] = key.parse(text)
        except ConfigError as error:
            problems += error.problems
    problems += broker_problems(values)
    try:
        listeners = parse_listeners(values, frozenset(given))
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    layers = _Layers(static, dynamic_broker, dynamic_default, values, listeners, not_in_force, reasons)
    _check_sasl(layers)
    return layers


def _used(
    static: Mapping[str, str], dynamic_broker: Mapping[str, str], dynamic_default: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Returns the dynamic settings that the broker uses, and why it does not use the others."""
    used: dict[str, str] = {}
    refused = refused_changes(static, {**dynamic_default, **dynamic_broker})
    reasons = [refusal_line(refused)] if refused else []
    for stored, per_broker in ((dynamic_default, False), (dynamic_broker, True)):
        others = {name: text for name, text in stored.items() if name not in refused}
        unusable = unusable_settings(others, per_broker=per_broker)
        reasons += unusable.values()
        used |= {name: text for name, text in others.items() if name not in unusable}
    return used, reasons


def _check_sasl(layers: _Layers) -> None:
    """
    :raises ConfigError: with one line per mistake in the settings of a listener with SASL.
    """
    if any(listener.protocol.has_sasl for listener in layers.listeners.bound):
        from headrace.broker.configs.sasl_rules import sasl_problems  # a broker without SASL starts faster without

        config = BrokerConfig(layers, {}, {})
        problems = list(sasl_problems(layers.listeners, config.of_listener, is_in_cluster=config.is_in_cluster))
        if problems:
            raise ConfigError(problems)


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings with the broker's id under both of its names. Kafka, too, fills in the missing one."""
    given = [static[name] for name in _ID_NAMES if name in static]
    return dict.fromkeys(_ID_NAMES, given[0]) | dict(static) if given else dict(static)


_ID_NAMES = ("broker.id", "node.id")
_DEFAULTS: Mapping[str, Value] = {name: key.default for name, key in BROKER_KEYS.items()}
