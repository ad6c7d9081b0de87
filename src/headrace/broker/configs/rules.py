"""Checks the rules between several settings of a broker or a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.broker.configs.ip_overrides import IP_OVERRIDES, parse_overrides
from headrace.broker.configs.keys import Value
from headrace.properties import ConfigError

#: (smaller, larger): the first may not be greater than the second.
_BROKER_ORDER = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.assignment.interval.ms", "group.consumer.assignment.interval.ms"),
    ("group.consumer.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)
_TOPIC_ORDER = (("min.compaction.lag.ms", "max.compaction.lag.ms"),)

_MIN_DEDUPE_BYTES_PER_THREAD = 1024 * 1024


def broker_problems(values: Mapping[str, Value]) -> list[str]:
    """Returns one line per rule that a broker's settings break."""
    problems = _out_of_order(_BROKER_ORDER, values)
    problems += [problem for rule in _BROKER_RULES if (problem := rule(values)) is not None]
    return problems


def topic_problems(values: Mapping[str, Value]) -> list[str]:
    """Returns one line per rule that a topic's settings break."""
    return _out_of_order(_TOPIC_ORDER, values)


def _number(values: Mapping[str, Value], name: str) -> int | None:
    value = values[name]
    assert value is None or isinstance(value, int)
    return value


def _out_of_order(pairs: Sequence[tuple[str, str]], values: Mapping[str, Value]) -> list[str]:
    problems = []
    for smaller, larger in pairs:
        low, high = _number(values, smaller), _number(values, larger)
        if low is not None and high is not None and low > high:
            problems.append(f"Conflicting configuration: {smaller} ({low}) is greater than {larger} ({high})")
    return problems


def _retention(values: Mapping[str, Value]) -> str | None:
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = _number(values, name)
        if value is not None and (value == 0 or value < -1):
            return f"Invalid value '{value}' for configuration {name}: must be -1 (forever) or at least 1"
    return None


def _roll(values: Mapping[str, Value]) -> str | None:
    for name, low in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        value = _number(values, name)
        if value is not None and value < low:
            return f"Invalid value '{value}' for configuration {name}: must be at least {low}"
    return None


def _queued_bytes(values: Mapping[str, Value]) -> str | None:
    queued, largest = _number(values, "queued.max.request.bytes"), _number(values, "socket.request.max.bytes")
    assert queued is not None
    assert largest is not None
    if queued <= 0 or queued >= largest:
        return None
    return (
        f"Conflicting configuration: queued.max.request.bytes ({queued}) is less than "
        f"socket.request.max.bytes ({largest})"
    )


def _dedupe_buffer(values: Mapping[str, Value]) -> str | None:
    size, threads = _number(values, "log.cleaner.dedupe.buffer.size"), _number(values, "log.cleaner.threads")
    assert size is not None
    assert threads is not None
    if not values["log.cleaner.enable"] or threads == 0 or size // threads > _MIN_DEDUPE_BYTES_PER_THREAD:
        return None
    return (
        f"Invalid value '{size}' for configuration log.cleaner.dedupe.buffer.size: "
        f"must be more than 1 MiB for each of log.cleaner.threads ({threads})"
    )


def _broker_ids(values: Mapping[str, Value]) -> str | None:
    broker_id, node_id = _number(values, "broker.id"), _number(values, "node.id")
    assert broker_id is not None
    assert node_id is not None
    if broker_id >= 0 and node_id >= 0 and broker_id != node_id:
        return f"Conflicting configuration: broker.id ({broker_id}) differs from node.id ({node_id})"
    return None


def given_id_problem(values: Mapping[str, Value]) -> str | None:
    """Returns what is wrong with the configured id of a broker. A generated id may be above reserved.broker.max.id."""
    broker_id = _number(values, "broker.id")
    assert broker_id is not None
    reserved = _number(values, "reserved.broker.max.id")
    assert reserved is not None
    generates = values["zookeeper.connect"] is not None and values["broker.id.generation.enable"]
    if generates and broker_id > reserved:
        return (
            f"Invalid value '{broker_id}' for configuration broker.id: must be at most "
            f"reserved.broker.max.id ({reserved}) while broker.id.generation.enable is true"
        )
    return None


def _connections_per_ip(values: Mapping[str, Value]) -> str | None:
    try:
        overrides = list(parse_overrides(str(values[IP_OVERRIDES])))
    except ConfigError as error:
        return str(error)
    if values["max.connections.per.ip"] == 0 and not overrides:
        return (
            "Invalid value '0' for configuration max.connections.per.ip: must be at least 1 "
            "unless max.connections.per.ip.overrides allows some addresses"
        )
    return None


_BROKER_RULES: tuple[Callable[[Mapping[str, Value]], str | None], ...] = (
    _retention,
    _roll,
    _queued_bytes,
    _dedupe_buffer,
    _broker_ids,
    _connections_per_ip,
)
