"""The options of the clients: THE tables, one a client kind, with Java's names and Java's defaults.

An option is a field; its Kafka name is the field's with dots (``linger_ms``: ``linger.ms``). Options come as keyword
arguments, as a dict of Kafka's names with numbers or texts, or as both, keywords first::

    ProducerConfig.load({"linger.ms": "5"}, bootstrap_servers="127.0.0.1:9092", acks="all")

A name that does not exist is a TypeError that offers the nearest one; a value that cannot be is a ValueError. Options
of Java's clients that mean nothing here (JVM classes, metrics reporters, ...) are accepted and logged as having no
effect. Options that ask for TLS or SASL are refused (``security_options.py``).
"""

# ruff: noqa: RUF009  option() makes a dataclass field
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from logging import getLogger
from typing import Any, NamedTuple, Self, TypeVar, get_type_hints

from headrace.client.offset_reset import parse_offset_reset
from headrace.client.partitioners.choice import known_partitioner
from headrace.client.security_options import (
    asks_for_security,
    check_listener_name,
    refuse_security_options,
    served_protocol,
)

logger = getLogger(__name__)
_V = TypeVar("_V")

_WITHOUT_EFFECT = (
    "metrics.", "metric.reporters", "auto.include.jmx.reporter",
    "enable.metrics.push", "interceptor.classes", "config.providers", "client.dns.lookup", "share.",
    "metadata.recovery.", "metadata.max.idle.ms", "socket.connection.setup.timeout.max.ms",
    "transaction.two.phase.commit.enable", "bootstrap.controllers",
)  # fmt: skip
_INT32_MAX = 2**31 - 1
DEFAULT_PORT = 9092


def option(
    default: Any, doc: str, *, least: int | None = 0, most: int = 2**63 - 1, one_of: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"doc": doc, "least": least, "most": most, "one_of": one_of})


class Option(NamedTuple):
    """A row of a table, as the documentation shows it."""

    name: str
    python_name: str
    type: str
    default: object
    doc: str


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """What all clients have."""

    bootstrap_servers: tuple[str, ...] = option((), "host:port of some brokers; the others are learned from them")
    client_id: str = option("", "a name for logs and quotas")
    connections_max_idle_ms: int = option(540_000, "taken, without effect: the broker closes idle ones", least=-1)
    metadata_max_age_ms: int = option(300_000, "ask again who leads what after so long, even without an error")
    receive_buffer_bytes: int = option(65_536, "taken, without effect: the system sizes buffers better", least=-1)
    send_buffer_bytes: int = option(131_072, "taken, without effect: the system sizes buffers better", least=-1)
    reconnect_backoff_ms: int = option(50, "wait before connecting again to a broker that failed; doubles")
    reconnect_backoff_max_ms: int = option(1_000, "the longest such wait")
    request_timeout_ms: int = option(30_000, "how long a request may stay unanswered")
    retry_backoff_ms: int = option(100, "wait before a failed request is sent again; doubles")
    retry_backoff_max_ms: int = option(1_000, "the longest such wait")
    security_protocol: str = option(
        "PLAINTEXT", "only PLAINTEXT so far; options that begin with ssl. or sasl. are refused"
    )
    socket_connection_setup_timeout_ms: int = option(10_000, "how long connecting may take")

    @property
    def api_timeout_ms(self) -> int:
        """How long a call may take, with all its retries, that says nothing else."""
        return self.request_timeout_ms * 2

    @classmethod
    def options(cls) -> list[Option]:
        hints = _types(cls)
        return [Option(_dotted(f.name), f.name, hints[f.name].label, f.default, f.metadata["doc"]) for f in fields(cls)]

    @classmethod
    def load(cls, config: Mapping[str, object] | None = None, /, **options: object) -> Self:
        """
        :raises TypeError: if an option does not exist.
        :raises ValueError: if a value cannot be, alone or with the others, or asks for security.
        """
        refuse_security_options({**(config or {}), **{_dotted(name): value for name, value in options.items()}})
        given: dict[str, object] = {}
        for name, value in (config or {}).items():
            if cls._is_known(name):
                given[name.replace(".", "_")] = value
        given.update((name, value) for name, value in options.items() if cls._is_known(_dotted(name)))
        if not given.get("bootstrap_servers"):
            raise ValueError('bootstrap_servers is missing: say where a broker is, such as "127.0.0.1:9092"')
        kinds = _types(cls)
        values: dict[str, Any] = {name: cls._parse(name, kinds[name], value) for name, value in given.items()}
        cls._agree(values)
        return cls(**values)

    @classmethod
    def of_shared(cls, properties: Mapping[str, _V]) -> dict[str, _V]:
        """The options for this client among properties that other clients share, to give to :meth:`load`.

        Options that ask for security stay among them, so that :meth:`load` refuses them.
        """
        known = {_dotted(f.name) for f in fields(cls)}
        return {name: value for name, value in properties.items() if name in known or asks_for_security(name)}

    @classmethod
    def _is_known(cls, name: str) -> bool:
        known = [_dotted(f.name) for f in fields(cls)]
        if name in known:
            return True
        if name.startswith(_WITHOUT_EFFECT) or asks_for_security(name):
            logger.info("the option %s has no effect here", name)
            return False
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]} ({near[0].replace('.', '_')})?" if near else ""
        raise TypeError(f"{cls.__name__} has no option {name}{hint}")

    @classmethod
    def _parse(cls, name: str, kind: _Kind, value: object) -> object:
        (spec,) = (f for f in fields(cls) if f.name == name)
        assert spec.default is not MISSING
        try:
            parsed = kind.parse(value)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{_dotted(name)} = {value!r}: {error}") from None
        least, most, one_of = (spec.metadata[bound] for bound in ("least", "most", "one_of"))
        if type(parsed) is int and least is not None and parsed < least:
            raise ValueError(f"{_dotted(name)} = {value!r}: at least {least}")
        if type(parsed) is int and parsed > most:
            raise ValueError(f"{_dotted(name)} = {value!r}: at most {most}")
        if one_of and parsed not in one_of:
            raise ValueError(f"{_dotted(name)} = {value!r}: one of {', '.join(one_of)}")
        return parsed

    @classmethod
    def _agree(cls, values: dict[str, Any]) -> None:
        """Checks options against each other, and sets those that follow from others."""
        values["bootstrap_servers"] = tuple(_server(text) for text in values["bootstrap_servers"])
        values["security_protocol"] = served_protocol(values.get("security_protocol", cls.security_protocol))


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    acks: str = option("all", "how many replicas must have a record: all (or -1), 1, 0", one_of=("all", "-1", "1", "0"))
    batch_size: int = option(
        16_384, "bytes that fill a batch; one that has to wait anyway grows to 16 times that; 0 sends each record alone"
    )
    buffer_memory: int = option(33_554_432, "bytes of records that may wait to be sent")
    compression_type: str = option(
        "none", "none, gzip, snappy, lz4 or zstd", one_of=("none", "gzip", "snappy", "lz4", "zstd")
    )
    compression_gzip_level: int = option(-1, "1 to 9; -1 is zlib's own", least=-1, most=9)
    compression_lz4_level: int = option(9, "1 to 17", least=1, most=17)
    compression_zstd_level: int = option(3, "-131072 to 22", least=-131_072, most=22)
    delivery_timeout_ms: int = option(120_000, "from send() to success or failure, with all retries")
    enable_idempotence: bool = option(True, "the broker drops what retries send twice")
    key_serializer: Callable[[Any], bytes | None] | None = option(None, "makes bytes of a key that is none")
    value_serializer: Callable[[Any], bytes | None] | None = option(None, "makes bytes of a value that is none")
    linger_ms: int = option(5, "wait so long for a batch to fill")
    max_block_ms: int = option(60_000, "how long send() may wait for memory and metadata")
    max_in_flight_requests_per_connection: int = option(5, "unanswered requests a broker", least=1)
    max_request_size: int = option(1_048_576, "the largest record and the largest request, in bytes")
    partitioner_adaptive_partitioning_enable: bool = option(True, "slow brokers get fewer records (KIP-794)")
    partitioner_availability_timeout_ms: int = option(0, "leave out partitions that block for so long; 0 never does")
    partitioner_class: Any = option(None, "a partitioner of your own, or the name of one of ours")
    partitioner_ignore_keys: bool = option(False, "do not choose the partition by the key")
    receive_buffer_bytes: int = option(32_768, "taken, without effect: the system sizes buffers better", least=-1)
    retries: int = option(
        _INT32_MAX, "how often a failed batch is sent again; the delivery timeout is the better bound"
    )
    transaction_timeout_ms: int = option(60_000, "the coordinator aborts a transaction that lasts longer")
    transactional_id: str | None = option(None, "turns transactions on; the same after a restart")

    @property
    def api_timeout_ms(self) -> int:
        return self.max_block_ms

    @classmethod
    def _agree(cls, values: dict[str, Any]) -> None:
        super()._agree(values)
        if values.get("compression_gzip_level") == 0:
            raise ValueError("compression.gzip.level = 0: 1 to 9, or -1")
        known_partitioner(values.get("partitioner_class"))
        if values.get("acks") == "-1":
            values["acks"] = "all"
        _agree_on_idempotence(values)
        least_ms = values.get("linger_ms", cls.linger_ms) + values.get("request_timeout_ms", cls.request_timeout_ms)
        if values.get("delivery_timeout_ms", cls.delivery_timeout_ms) < least_ms:
            if "delivery_timeout_ms" in values:
                raise ValueError(f"delivery.timeout.ms: at least linger.ms + request.timeout.ms, which is {least_ms}")
            values["delivery_timeout_ms"] = least_ms


def _agree_on_idempotence(values: dict[str, Any]) -> None:
    """Idempotence is on unless another option rules it out; asked for by name, that other option is refused."""
    obstacles = []
    if values.get("acks", "all") != "all":
        obstacles.append("acks=all")
    if values.get("retries", 1) == 0:
        obstacles.append("retries above 0")
    if values.get("max_in_flight_requests_per_connection", 5) > 5:
        obstacles.append("max.in.flight.requests.per.connection of at most 5")
    is_asked_for = values.get("enable_idempotence", values.get("transactional_id") is not None)
    if values.get("transactional_id") is not None and not is_asked_for:
        raise ValueError("transactional.id needs enable.idempotence=true")
    if is_asked_for and obstacles:
        raise ValueError(f"idempotence and transactions need {' and '.join(obstacles)}")
    if obstacles:
        values["enable_idempotence"] = False


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    allow_auto_create_topics: bool = option(True, "subscribing may create a topic, if the broker does that")
    auto_commit_interval_ms: int = option(5_000, "how often positions are committed")
    auto_offset_reset: str = option(
        "latest", "where to begin without a commit: earliest, latest, none, by_duration:<ISO 8601 duration>"
    )
    check_crcs: bool = option(True, "check the checksum of each batch")
    client_rack: str = option("", "where this client is; a replica of the same rack is read if there is one")
    default_api_timeout_ms: int = option(60_000, "how long a call may take that says nothing else")
    enable_auto_commit: bool = option(True, "commit positions in the background")
    exclude_internal_topics: bool = option(True, "a pattern does not match internal topics")
    fetch_max_bytes: int = option(52_428_800, "bytes of one answer")
    fetch_max_wait_ms: int = option(500, "how long the broker may wait for fetch.min.bytes")
    fetch_min_bytes: int = option(1, "the broker waits until it has so many")
    group_id: str | None = option(None, "the consumer group")
    group_instance_id: str | None = option(None, "static membership: a restart is no rebalance")
    group_protocol: str = option("classic", "classic, or consumer (KIP-848)", one_of=("classic", "consumer"))
    group_remote_assignor: str | None = option(None, "which of the broker's assignors; for group.protocol=consumer")
    heartbeat_interval_ms: int = option(3_000, "time between heartbeats; for group.protocol=classic")
    isolation_level: str = option(
        "read_uncommitted", "read_committed hides aborted transactions", one_of=("read_uncommitted", "read_committed")
    )
    key_deserializer: Callable[[bytes | None], Any] | None = option(None, "what a key is turned into")
    value_deserializer: Callable[[bytes | None], Any] | None = option(None, "what a value is turned into")
    max_partition_fetch_bytes: int = option(1_048_576, "bytes a partition of one answer")
    max_poll_interval_ms: int = option(300_000, "a member that does not poll for longer leaves", least=1)
    max_poll_records: int = option(500, "records of one poll()", least=1)
    partition_assignment_strategy: tuple[str, ...] = option(
        ("range", "cooperative-sticky"), "range, roundrobin, sticky, cooperative-sticky, in order of preference"
    )
    session_timeout_ms: int = option(45_000, "a member without heartbeats for longer is out")

    @property
    def api_timeout_ms(self) -> int:
        return self.default_api_timeout_ms

    @classmethod
    def _agree(cls, values: dict[str, Any]) -> None:
        super()._agree(values)
        parse_offset_reset(values.get("auto_offset_reset", "latest"))
        if values.get("group_id") is None:
            if values.get("enable_auto_commit"):
                raise ValueError("enable.auto.commit needs a group.id")
            values["enable_auto_commit"] = False
        if "partition_assignment_strategy" in values:
            values["partition_assignment_strategy"] = _assignors(values["partition_assignment_strategy"])


_JAVA_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def _assignors(names: tuple[str, ...]) -> tuple[str, ...]:
    ours = tuple(_JAVA_ASSIGNORS.get(name.split(".")[-1], name) for name in names)
    if not ours or not set(ours) <= set(_JAVA_ASSIGNORS.values()):
        known = ", ".join(_JAVA_ASSIGNORS.values())
        raise ValueError(f"partition.assignment.strategy = {','.join(names)!r}: one or more of {known}")
    return ours


@dataclass(frozen=True, kw_only=True)
class AdminConfig(ClientConfig):
    connections_max_idle_ms: int = option(300_000, "taken, without effect: the broker closes idle ones", least=-1)
    default_api_timeout_ms: int = option(60_000, "how long a call may take that says nothing else")
    retries: int = option(_INT32_MAX, "how often a failed request is sent again; the timeout is the better bound")

    @property
    def api_timeout_ms(self) -> int:
        return self.default_api_timeout_ms


# -- values


class _Kind(NamedTuple):
    label: str
    parse: Callable[[object], object]


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a whole number is wanted")
    try:
        return int(value)
    except ValueError:
        raise ValueError("a whole number is wanted") from None


def _bool(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("true or false is wanted")
    return text == "true"


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("a text is wanted")
    return str(value)


def _texts(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple | set | frozenset):
        raise ValueError("a list is wanted, or a text with commas")
    return tuple(text for item in items if (text := _text(item).strip()))


def _callable(value: object) -> object:
    if value is not None and not callable(value):
        raise ValueError("a function is wanted")
    return value


def _optional(value: object) -> str | None:
    return None if value is None else _text(value)


_KINDS: dict[object, _Kind] = {
    int: _Kind("int", _int),
    bool: _Kind("boolean", _bool),
    str: _Kind("string", _text),
    str | None: _Kind("string", _optional),
    tuple[str, ...]: _Kind("list", _texts),
    Any: _Kind("class", lambda value: value),
}


def _types(cls: type[ClientConfig]) -> dict[str, _Kind]:
    hints = get_type_hints(cls)
    function = _Kind("function", _callable)
    return {f.name: _KINDS.get(hints[f.name], function) for f in fields(cls)}


def _dotted(name: str) -> str:
    return name.replace("_", ".")


def _server(text: str) -> str:
    host, port = parse_address(text)
    return f"{host}:{port}" if ":" not in host else f"[{host}]:{port}"


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``, ``host`` (port 9092), ``[::1]:9092``; a listener's name before it is left out.

    :raises ValueError: if the text is none of these, or names a listener with TLS or SASL.
    """
    check_listener_name(text)
    address = text.rpartition("://")[2]
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"bootstrap.servers: {text!r} is no host:port")
    return host, int(port)
