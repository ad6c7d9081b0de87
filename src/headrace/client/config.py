"""The options of the clients: one table per client, with Java's names and Java's defaults.

An option is a field of a class. Its Kafka name has dots instead of underscores (``linger_ms``: ``linger.ms``). A
program passes options as keyword arguments, as a dict of Kafka's names with numbers or strings, or as both. Keywords
win::

    ProducerConfig.load({"linger.ms": "5"}, bootstrap_servers="127.0.0.1:9092", acks="all")

An unknown name raises a TypeError that suggests the nearest name. An invalid value raises a ValueError. Options of
Java's clients that have no meaning here (JVM classes, metrics reporters, ...) are accepted, ignored and logged. The
options for security are in ``security/options.py``. Values of secrets appear in no message.
"""

# ruff: noqa: RUF009  option() makes a dataclass field
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from logging import getLogger
from typing import Any, Self, TypeVar, get_type_hints

from headrace.client.offset_reset import parse_offset_reset
from headrace.client.option_types import Option, OptionType, option, option_type
from headrace.client.partitioners.choice import known_partitioner
from headrace.client.security.options import (
    IGNORED,
    REFUSED,
    SecurityOptions,
    check_security,
    is_about_security,
    refuse_unserved,
    without_unset,
)

logger = getLogger(__name__)
_V = TypeVar("_V")

_IGNORED = (
    "metrics.recording.level", "metric.reporters", "auto.include.jmx.reporter",
    "interceptor.classes", "client.dns.lookup", "share.",
    "metadata.recovery.", "metadata.max.idle.ms", "socket.connection.setup.timeout.max.ms",
    "transaction.two.phase.commit.enable", "bootstrap.controllers", *IGNORED,
)  # fmt: skip
_INT32_MAX = 2**31 - 1
DEFAULT_PORT = 9092


@dataclass(frozen=True, kw_only=True)
class ClientConfig(SecurityOptions):
    """The options that all clients have."""

    bootstrap_servers: tuple[str, ...] = option((), "host:port of some brokers; the client asks them for the others")
    client_id: str = option("", "a name for the broker's logs and quotas")
    connections_max_idle_ms: int = option(540_000, "accepted and ignored: the broker closes idle connections", least=-1)
    metadata_max_age_ms: int = option(300_000, "refresh the metadata after this time, even without an error")
    enable_metrics_push: bool = option(True, "push metrics to a broker that asks for them (KIP-714)")
    metrics_num_samples: int = option(2, "the number of samples that averages, maxima and rates are about", least=1)
    metrics_sample_window_ms: int = option(30_000, "the length of such a sample", least=1)
    receive_buffer_bytes: int = option(
        65_536, "accepted and ignored: the operating system sets the buffer sizes", least=-1
    )
    send_buffer_bytes: int = option(
        131_072, "accepted and ignored: the operating system sets the buffer sizes", least=-1
    )
    reconnect_backoff_ms: int = option(
        50, "the wait before connecting again to a broker after a failure; doubles with each failure"
    )
    reconnect_backoff_max_ms: int = option(1_000, "the longest wait before connecting again")
    request_timeout_ms: int = option(30_000, "how long a request may wait for its answer")
    retry_backoff_ms: int = option(100, "the wait before a failed request is sent again; doubles with each failure")
    retry_backoff_max_ms: int = option(1_000, "the longest wait before a failed request is sent again")
    socket_connection_setup_timeout_ms: int = option(10_000, "how long connecting may take")

    @property
    def api_timeout_ms(self) -> int:
        """The timeout of a call, with all its retries, if the call has no timeout of its own."""
        return self.request_timeout_ms * 2

    @classmethod
    def options(cls) -> list[Option]:
        hints = _types(cls)
        return [
            Option(
                _dotted(f.name),
                f.name,
                "password" if f.metadata["is_secret"] else hints[f.name].label,
                f.default,
                f.metadata["doc"],
            )
            for f in fields(cls)
        ]

    @classmethod
    def load(cls, config: Mapping[str, object] | None = None, /, **options: object) -> Self:
        """
        :raises TypeError: if an option does not exist.
        :raises ValueError: if a value is invalid, or contradicts another option.
        """
        refuse_unserved({**(config or {}), **{_dotted(name): value for name, value in options.items()}})
        given: dict[str, object] = {}
        for name, value in (config or {}).items():
            if cls._is_known(name):
                given[name.replace(".", "_")] = value
        given.update((name, value) for name, value in options.items() if cls._is_known(_dotted(name)))
        given = without_unset(given)
        if not given.get("bootstrap_servers"):
            raise ValueError('the option bootstrap_servers is missing: set it to an address such as "127.0.0.1:9092"')
        kinds = _types(cls)
        values: dict[str, Any] = {name: cls._parse(name, kinds[name], value) for name, value in given.items()}
        cls._check_together(values)
        return cls(**values)

    @classmethod
    def select(cls, properties: Mapping[str, _V]) -> dict[str, _V]:
        """Selects the options of this client from properties that several clients share, for :meth:`load`.

        All options about security are selected, even unknown ones, so that :meth:`load` refuses those.
        """
        known = {_dotted(f.name) for f in fields(cls)}
        return {name: value for name, value in properties.items() if name in known or is_about_security(name)}

    @classmethod
    def _is_known(cls, name: str) -> bool:
        known = [_dotted(f.name) for f in fields(cls)]
        if name in known:
            return True
        if name.startswith((*_IGNORED, *REFUSED)):
            logger.info("the option %s is ignored: it has no meaning for this client", name)
            return False
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]} ({near[0].replace('.', '_')})?" if near else ""
        raise TypeError(f"{cls.__name__} has no option {name}{hint}")

    @classmethod
    def _parse(cls, name: str, kind: OptionType, value: object) -> object:
        (spec,) = (f for f in fields(cls) if f.name == name)
        assert spec.default is not MISSING
        try:
            parsed = kind.parse(value)
        except (ValueError, TypeError) as error:
            shown = "" if spec.metadata["is_secret"] else f" = {value!r}"
            raise ValueError(f"{_dotted(name)}{shown}: {error}") from None
        least, most, one_of = (spec.metadata[bound] for bound in ("least", "most", "one_of"))
        if type(parsed) is int and least is not None and parsed < least:
            raise ValueError(f"{_dotted(name)} = {value!r}: must be at least {least}")
        if type(parsed) is int and parsed > most:
            raise ValueError(f"{_dotted(name)} = {value!r}: must be at most {most}")
        if one_of and parsed not in one_of:
            raise ValueError(f"{_dotted(name)} = {value!r}: must be one of {', '.join(one_of)}")
        return parsed

    @classmethod
    def _check_together(cls, values: dict[str, Any]) -> None:
        """Checks options against each other, and sets options that follow from others."""
        check_security(values, values["bootstrap_servers"])
        values["bootstrap_servers"] = tuple(_server(text) for text in values["bootstrap_servers"])


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The options of ``Producer`` and ``AsyncProducer``."""

    acks: str = option(
        "all",
        "how many replicas must store a record before it is acknowledged: all (or -1), 1, 0",
        one_of=("all", "-1", "1", "0"),
    )
    batch_size: int = option(
        16_384,
        "the size of a full batch in bytes; a batch that must wait for an answer grows up to 16 times; 0 sends each "
        "record alone",
    )
    buffer_memory: int = option(33_554_432, "how many bytes of records may wait to be sent")
    compression_type: str = option(
        "none", "none, gzip, snappy, lz4 or zstd", one_of=("none", "gzip", "snappy", "lz4", "zstd")
    )
    compression_gzip_level: int = option(-1, "1 to 9; -1 is zlib's default", least=-1, most=9)
    compression_lz4_level: int = option(9, "1 to 17", least=1, most=17)
    compression_zstd_level: int = option(3, "-131072 to 22", least=-131_072, most=22)
    delivery_timeout_ms: int = option(120_000, "the time from send() to success or failure, with all retries")
    enable_idempotence: bool = option(True, "the broker drops duplicates that retries cause")
    key_serializer: Callable[[Any], bytes | None] | None = option(None, "a function that turns a key into bytes")
    value_serializer: Callable[[Any], bytes | None] | None = option(None, "a function that turns a value into bytes")
    linger_ms: int = option(5, "how long a batch waits for more records")
    max_block_ms: int = option(60_000, "how long send() may wait for memory and metadata")
    max_in_flight_requests_per_connection: int = option(5, "the most unanswered requests per broker", least=1)
    max_request_size: int = option(1_048_576, "the largest size of a record and of a request, in bytes")
    partitioner_adaptive_partitioning_enable: bool = option(True, "slow brokers get fewer records (KIP-794)")
    partitioner_availability_timeout_ms: int = option(
        0, "avoid the partitions of a broker that takes no batches for this time; 0 avoids none"
    )
    partitioner_class: Any = option(None, "a Partitioner of your own, or Adaptive, RoundRobin or UniformSticky")
    partitioner_ignore_keys: bool = option(False, "choose the partition without looking at the key")
    receive_buffer_bytes: int = option(
        32_768, "accepted and ignored: the operating system sets the buffer sizes", least=-1
    )
    retries: int = option(_INT32_MAX, "how often a failed batch is sent again; delivery.timeout.ms is the better limit")
    transaction_timeout_ms: int = option(60_000, "the coordinator aborts a transaction that lasts longer")
    transactional_id: str | None = option(None, "turns transactions on; must be the same after a restart")

    @property
    def api_timeout_ms(self) -> int:
        return self.max_block_ms

    @classmethod
    def _check_together(cls, values: dict[str, Any]) -> None:
        super()._check_together(values)
        if values.get("compression_gzip_level") == 0:
            raise ValueError("compression.gzip.level = 0: must be 1 to 9, or -1")
        known_partitioner(values.get("partitioner_class"))
        if values.get("acks") == "-1":
            values["acks"] = "all"
        _check_idempotence(values)
        least_ms = values.get("linger_ms", cls.linger_ms) + values.get("request_timeout_ms", cls.request_timeout_ms)
        if values.get("delivery_timeout_ms", cls.delivery_timeout_ms) < least_ms:
            if "delivery_timeout_ms" in values:
                raise ValueError(
                    f"delivery.timeout.ms must be at least linger.ms + request.timeout.ms, which is {least_ms}"
                )
            values["delivery_timeout_ms"] = least_ms


def _check_idempotence(values: dict[str, Any]) -> None:
    """Turns idempotence off if another option excludes it. If the user asked for idempotence, that is an error."""
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
    """The options of ``Consumer`` and ``AsyncConsumer``."""

    allow_auto_create_topics: bool = option(
        True, "subscribing to a missing topic may create it, if the broker allows that"
    )
    auto_commit_interval_ms: int = option(5_000, "the time between automatic commits")
    auto_offset_reset: str = option(
        "latest",
        "the position without a committed offset: earliest, latest, none (an error), by_duration:<ISO 8601 duration>",
    )
    check_crcs: bool = option(True, "verify the checksum of each batch")
    client_rack: str = option(
        "", "the rack of this client; the consumer reads from a replica in the same rack if there is one"
    )
    default_api_timeout_ms: int = option(60_000, "the timeout of a call that has no timeout of its own")
    enable_auto_commit: bool = option(True, "commit offsets automatically, within poll()")
    exclude_internal_topics: bool = option(True, "a pattern does not match internal topics")
    fetch_max_bytes: int = option(52_428_800, "the most bytes of one Fetch response")
    fetch_max_wait_ms: int = option(500, "how long the broker waits for fetch.min.bytes")
    fetch_min_bytes: int = option(1, "the broker waits until it has this many bytes")
    group_id: str | None = option(None, "the consumer group")
    group_instance_id: str | None = option(None, "static membership: a restart of the consumer causes no rebalance")
    group_protocol: str = option("classic", "classic, or consumer (KIP-848)", one_of=("classic", "consumer"))
    group_remote_assignor: str | None = option(
        None, "the name of an assignor of the broker; for group.protocol=consumer"
    )
    heartbeat_interval_ms: int = option(3_000, "the time between heartbeats; for group.protocol=classic")
    isolation_level: str = option(
        "read_uncommitted",
        "read_committed hides records of aborted and open transactions",
        one_of=("read_uncommitted", "read_committed"),
    )
    key_deserializer: Callable[[bytes | None], Any] | None = option(
        None, "a function that turns the bytes of a key into an object"
    )
    value_deserializer: Callable[[bytes | None], Any] | None = option(
        None, "a function that turns the bytes of a value into an object"
    )
    max_partition_fetch_bytes: int = option(1_048_576, "the most bytes per partition in one Fetch response")
    max_poll_interval_ms: int = option(
        300_000, "a member that does not call poll() for this time leaves the group", least=1
    )
    max_poll_records: int = option(500, "the most records that one poll() returns", least=1)
    partition_assignment_strategy: tuple[str, ...] = option(
        ("range", "cooperative-sticky"), "range, roundrobin, sticky, cooperative-sticky, in order of preference"
    )
    session_timeout_ms: int = option(45_000, "the group removes a member that sends no heartbeat for this time")

    @property
    def api_timeout_ms(self) -> int:
        return self.default_api_timeout_ms

    @classmethod
    def _check_together(cls, values: dict[str, Any]) -> None:
        super()._check_together(values)
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
        raise ValueError(f"partition.assignment.strategy = {','.join(names)!r}: must be one or more of {known}")
    return ours


@dataclass(frozen=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The options of ``Admin`` and ``AsyncAdmin``."""

    connections_max_idle_ms: int = option(300_000, "accepted and ignored: the broker closes idle connections", least=-1)
    default_api_timeout_ms: int = option(60_000, "the timeout of a call that has no timeout of its own")
    retries: int = option(_INT32_MAX, "how often a failed request is sent again; the timeout is the better limit")

    @property
    def api_timeout_ms(self) -> int:
        return self.default_api_timeout_ms


def _types(cls: type[ClientConfig]) -> dict[str, OptionType]:
    hints = get_type_hints(cls)
    return {f.name: option_type(hints[f.name]) for f in fields(cls)}


def _dotted(name: str) -> str:
    return name.replace("_", ".")


def _server(text: str) -> str:
    host, port = parse_address(text)
    return f"{host}:{port}" if ":" not in host else f"[{host}]:{port}"


def parse_address(text: str) -> tuple[str, int]:
    """Parses ``host:port``, ``host`` (port 9092) or ``[::1]:9092``. A listener's name before the host is ignored.

    :raises ValueError: if the text is not an address.
    """
    address = text.rpartition("://")[2]
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"bootstrap.servers: {text!r} is not host:port")
    return host, int(port)
