"""A broker's settings: read from files and options, layered, changed at run time, asked for by Kafka's names.

The registry (``headrace.broker.configs``) says which settings there are; this module holds the values of one broker.
A value comes from the strongest layer that has it: dynamic settings of this broker, dynamic settings of the cluster,
what the broker was started with, the default. The dynamic layers change while the broker runs, through
:meth:`BrokerConfig.apply_dynamic`, which checks everything first, then swaps all values at once, then tells those who
asked. It belongs to the event loop's thread; reading a value is one dictionary access.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from itertools import chain
from logging import getLogger
from typing import NamedTuple

from headrace.broker.configs.alter import check_dynamic
from headrace.broker.configs.keys import Value
from headrace.broker.configs.listeners import Listeners, parse_listeners
from headrace.broker.configs.refusals import LISTENER_PREFIX, refusal_line, refused_settings
from headrace.broker.configs.registry import BROKER_KEYS, broker_key, without_meaning
from headrace.broker.configs.rules import broker_problems, given_id_problem
from headrace.properties import ConfigError
from headrace.protocol.errors import InvalidRequest

logger = getLogger(__name__)


class _State(NamedTuple):
    """All that follows from the three layers; replaced as a whole."""

    static: Mapping[str, str]
    dynamic_broker: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    values: dict[str, Value]
    listeners: Listeners
    #: Dynamic settings that would be refused, with their texts. They are stored, perhaps by Apache Kafka.
    not_in_force: Mapping[str, str]


class BrokerConfig:
    """One broker's settings. Make it with :meth:`load`."""

    def __init__(self, state: _State, unknown: Mapping[str, str], ignored: Mapping[str, str]) -> None:
        self._state = state
        self._watchers: dict[builtins.str, builtins.list[Callable[[Value], None]]] = {}
        self._any_watchers: builtins.list[Callable[[frozenset[builtins.str]], None]] = []
        #: Names that mean nothing to anybody (perhaps typing errors), with their values.
        self.unknown = unknown
        #: Names that Apache Kafka knows and that do nothing here, with the reason.
        self.ignored = ignored

    @classmethod
    def load(cls, properties: Mapping[builtins.str, builtins.str]) -> BrokerConfig:
        """Checks everything; raises ConfigError with one line for each mistake."""
        stripped = {name: text.strip() for name, text in properties.items()}
        refused = refused_settings(stripped)
        if refused:
            raise ConfigError(refusal_line(refused))
        static = {name: text for name, text in stripped.items() if broker_key(name) is not None}
        strange = {name: text for name, text in stripped.items() if name not in static}
        ignored = {name: reason for name in strange if (reason := without_meaning(name)) is not None}
        unknown = {name: text for name, text in strange.items() if name not in ignored}
        state = _resolve(_with_both_ids(static), {}, {})
        problem = given_id_problem(state.values)
        if problem is not None:
            raise ConfigError(problem)
        return cls(state, unknown, ignored)

    # What was set, by layer.

    @property
    def static(self) -> Mapping[builtins.str, builtins.str]:
        return self._state.static

    @property
    def dynamic_broker(self) -> Mapping[builtins.str, builtins.str]:
        return self._state.dynamic_broker

    @property
    def dynamic_default(self) -> Mapping[builtins.str, builtins.str]:
        return self._state.dynamic_default

    @property
    def not_in_force(self) -> Mapping[builtins.str, builtins.str]:
        """Stored dynamic settings that the broker does not use, because they promise what it does not do."""
        return self._state.not_in_force

    def all_names(self) -> builtins.list[builtins.str]:
        """Every setting of the registry, and whatever else was set: at start, at run time, or for one listener."""
        state = self._state
        others = (state.static, self.unknown, self.ignored, state.dynamic_default, state.dynamic_broker)
        return [*dict.fromkeys([*BROKER_KEYS, *chain.from_iterable(others)])]

    # What follows from several settings.

    @property
    def listeners(self) -> Listeners:
        return self._state.listeners

    @property
    def broker_id(self) -> builtins.int | None:
        """node.id or broker.id; None if neither is set."""
        number = max(self.int("node.id"), self.int("broker.id"))
        return number if number >= 0 else None

    @property
    def log_dirs(self) -> tuple[builtins.str, ...]:
        """The data folders of log.dirs, else of log.dir; empty if neither is set."""
        return self.list("log.dirs") or self.list("log.dir")

    def for_listener(self, listener: builtins.str, name: builtins.str, mechanism: builtins.str | None = None) -> Value:
        """A setting as it holds on one listener (for one SASL mechanism), which may have its own."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        tried = [f"{prefix}{mechanism.lower()}.{name}"] if mechanism is not None else []
        for own in (*tried, f"{prefix}{name}"):
            if own in self._state.values:
                return self._state.values[own]
        return self[name]

    def settle_broker_id(self, broker_id: builtins.int) -> None:
        """Nobody has set one: the broker says which it takes."""
        assert self.broker_id is None
        static = {**self._state.static, **dict.fromkeys(_ID_NAMES, builtins.str(broker_id))}
        self._state = _resolve(static, self._state.dynamic_broker, self._state.dynamic_default)

    # Changing it.

    def on_change(self, name: builtins.str, callback: Callable[[Value], None]) -> None:
        """Calls back with the new value whenever one setting has changed."""
        assert name in BROKER_KEYS, name
        self._watchers.setdefault(name, []).append(callback)

    def on_any_change(self, callback: Callable[[frozenset[builtins.str]], None]) -> None:
        """Calls back with the names of all settings that changed together."""
        self._any_watchers.append(callback)

    def apply_dynamic(
        self,
        broker_overrides: Mapping[builtins.str, builtins.str],
        default_overrides: Mapping[builtins.str, builtins.str],
    ) -> set[builtins.str]:
        """Puts the dynamic layers in force; returns the names whose value changed. InvalidRequest if one is wrong."""
        check_dynamic(broker_overrides, per_broker=True)
        check_dynamic(default_overrides, per_broker=False)
        try:
            state = self.with_dynamic(broker_overrides, default_overrides)
        except ConfigError as error:
            raise InvalidRequest(builtins.str(error)) from None
        before, self._state = self._state, state
        self._warn_of_refused(before.not_in_force)
        names = {*before.values, *state.values}
        changed = {name for name in names if before.values.get(name) != state.values.get(name)}
        self._tell(changed)
        return changed

    def _warn_of_refused(self, before: Mapping[builtins.str, builtins.str]) -> None:
        stored = self._state.not_in_force
        if stored and stored != before:
            given = {**self._state.static, **stored}
            logger.error("stored settings are not in force: %s", refusal_line(refused_settings(given)))

    def with_dynamic(
        self,
        broker_overrides: Mapping[builtins.str, builtins.str],
        default_overrides: Mapping[builtins.str, builtins.str],
    ) -> _State:
        """What would be in force with these dynamic layers; ConfigError if they are wrong."""
        return _resolve(self._state.static, dict(broker_overrides), dict(default_overrides))

    def _tell(self, changed: set[builtins.str]) -> None:
        for name in sorted(changed):
            for callback in self._watchers.get(name, ()):
                callback(self._state.values[name])
        if changed:
            for watcher in self._any_watchers:
                watcher(frozenset(changed))

    # Asking, by Kafka's name. These come last: their names hide the builtin types from what follows.

    def __getitem__(self, name: builtins.str) -> Value:
        return self._state.values[name]

    def optional_int(self, name: builtins.str) -> builtins.int | None:
        value = self._state.values[name]
        assert value is None or isinstance(value, builtins.int), name
        return value

    def optional_str(self, name: builtins.str) -> builtins.str | None:
        value = self._state.values[name]
        assert value is None or isinstance(value, builtins.str), name
        return value

    def int(self, name: builtins.str) -> builtins.int:
        value = self._state.values[name]
        assert isinstance(value, builtins.int), name
        return value

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self._state.values[name]
        assert isinstance(value, builtins.bool), name
        return value

    def float(self, name: builtins.str) -> builtins.float:
        value = self._state.values[name]
        assert isinstance(value, builtins.float), name
        return value

    def str(self, name: builtins.str) -> builtins.str:
        value = self._state.values[name]
        assert isinstance(value, builtins.str), name
        return value

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        """A list's items; none if it is not set."""
        value = self._state.values[name]
        assert value is None or isinstance(value, tuple), name
        return value or ()


def _resolve(
    static: Mapping[str, str], dynamic_broker: Mapping[str, str], dynamic_default: Mapping[str, str]
) -> _State:
    """The values that three layers give; ConfigError with every mistake in them."""
    dynamic = {**dynamic_default, **dynamic_broker}
    refused = refused_settings({**static, **dynamic})
    not_in_force = {name: text for name, text in dynamic.items() if name in refused}
    given = {**static, **{name: text for name, text in dynamic.items() if name not in refused}}
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
    return _State(static, dynamic_broker, dynamic_default, values, listeners, not_in_force)


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """The settings with the broker's id under both of its names, as Kafka fills in the one that is missing."""
    given = [static[name] for name in _ID_NAMES if name in static]
    return dict.fromkeys(_ID_NAMES, given[0]) | dict(static) if given else dict(static)


_ID_NAMES = ("broker.id", "node.id")
_DEFAULTS: Mapping[str, Value] = {name: key.default for name, key in BROKER_KEYS.items()}
