"""The content of Kafka's znodes, one class per kind. ``paths.py`` has the path of each kind.

The content is JSON with a ``version``. Times are decimal strings. Ids are base64 (url-safe, without padding). Reading
accepts any version that contains the required fields, and raises :class:`MalformedZnodeError` for anything else.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias, cast
from uuid import UUID, uuid4

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"
TopicPartition: TypeAlias = tuple[str, int]


class MalformedZnodeError(ValueError):
    """The content of a znode does not have the format of its kind."""


def encode_uuid(value: UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    try:
        return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError) as error:
        raise MalformedZnodeError(f"{text!r} is not a base64 id of 16 bytes: {error}") from None


def random_uuid() -> UUID:
    """A new id for a topic or a cluster. No id starts with a dash, because commands would read it as an option."""
    while encode_uuid(value := uuid4()).startswith("-"):
        pass
    return value


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    with _reading("a controller epoch", data):
        return int(data)


def _encode(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@contextmanager
def _reading(what: str, data: bytes, *, is_secret: bool = False) -> Iterator[None]:
    """Turns any error inside into :class:`MalformedZnodeError`, which shows the data unless they may be secret."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        shown = f"the content of {len(data)} bytes" if is_secret else repr(data[:200])
        raise MalformedZnodeError(f"{shown} is not {what}: {error!r}") from error


def _object(data: bytes) -> dict[str, Json]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value


def _int(value: Json) -> int:
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return int(value)


def _ints(value: Json) -> tuple[int, ...]:
    return tuple(_int(number) for number in cast(list[Json], value))


def _replicas(value: Json) -> dict[int, tuple[int, ...]]:
    return {int(partition): _ints(replicas) for partition, replicas in cast(dict[str, Json], value or {}).items()}


def _topic_partition(value: Json) -> TopicPartition:
    entry = cast(dict[str, Json], value)
    return str(entry["topic"]), _int(entry["partition"])


class Endpoint(NamedTuple):
    listener: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"

    @classmethod
    def parse(cls, text: str, protocols: Mapping[str, str]) -> "Endpoint":
        listener, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        # Before version 4, a listener had the name of its security protocol.
        return cls(listener, protocols.get(listener, listener), host.removeprefix("[").removesuffix("]"), int(port))


class BrokerRegistration(NamedTuple):
    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    #: min_version and max_version of each feature (KIP-584).
    features: Mapping[str, Mapping[str, int]] = {}

    def to_json(self) -> bytes:
        # Old clients read only one address, the one without encryption.
        plaintext = next((one for one in self.endpoints if one.security_protocol == "PLAINTEXT"), None)
        rack = {} if self.rack is None else {"rack": self.rack}
        return _encode(
            {
                "features": self.features,
                "listener_security_protocol_map": {one.listener: one.security_protocol for one in self.endpoints},
                "endpoints": [str(one) for one in self.endpoints],
                "jmx_port": self.jmx_port,
                "port": plaintext.port if plaintext else -1,
                "host": plaintext.host if plaintext else None,
                "version": 5,
                "timestamp": str(self.timestamp_ms),
                **rack,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> "BrokerRegistration":
        with _reading("a broker's registration", data):
            value = _object(data)
            protocols = cast(dict[str, str], value.get("listener_security_protocol_map") or {})
            return cls(
                tuple(Endpoint.parse(str(text), protocols) for text in cast(list[Json], value["endpoints"])),
                _int(value["timestamp"]),
                cast(str | None, value.get("rack")),
                _int(value.get("jmx_port", -1)),
                cast(dict[str, dict[str, int]], value.get("features") or {}),
            )


class TopicAssignment(NamedTuple):
    """The brokers of each partition. During a reassignment also the replicas that are being added and removed."""

    #: None if a Kafka before 2.8 created the topic.
    topic_id: UUID | None
    partitions: Mapping[int, tuple[int, ...]]
    adding_replicas: Mapping[int, tuple[int, ...]] = {}
    removing_replicas: Mapping[int, tuple[int, ...]] = {}

    def to_json(self) -> bytes:
        topic_id = {} if self.topic_id is None else {"topic_id": encode_uuid(self.topic_id)}
        return _encode(
            {
                "version": 3,
                **topic_id,
                "partitions": self.partitions,
                "adding_replicas": self.adding_replicas,
                "removing_replicas": self.removing_replicas,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> "TopicAssignment":
        with _reading("a topic", data):
            value = _object(data)
            topic_id = value.get("topic_id")
            return cls(
                None if topic_id is None else decode_uuid(str(topic_id)),
                _replicas(value["partitions"]),
                _replicas(value.get("adding_replicas")),
                _replicas(value.get("removing_replicas")),
            )


class PartitionState(NamedTuple):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    #: The leader was elected uncleanly and has not recovered yet (KIP-704). Written only if true.
    is_recovering: bool = False

    def to_json(self) -> bytes:
        recovery = {"leader_recovery_state": 1} if self.is_recovering else {}
        return _encode(
            {
                "controller_epoch": self.controller_epoch,
                "leader": self.leader,
                "version": 1,
                "leader_epoch": self.leader_epoch,
                "isr": self.isr,
                **recovery,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> "PartitionState":
        with _reading("a partition's state", data):
            value = _object(data)
            return cls(
                _int(value["leader"]),
                _int(value["leader_epoch"]),
                _ints(value["isr"]),
                _int(value["controller_epoch"]),
                value.get("leader_recovery_state", 0) == 1,
            )


class ControllerRegistration(NamedTuple):
    broker_id: int
    timestamp_ms: int

    def to_json(self) -> bytes:
        # Version 2 was added for the migration to KRaft; -1 means that this is not a KRaft controller.
        return _encode(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": -1,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> "ControllerRegistration":
        with _reading("a controller's registration", data):
            value = _object(data)
            return cls(_int(value["brokerid"]), _int(value["timestamp"]))


class ClusterId(NamedTuple):
    cluster_id: str

    def to_json(self) -> bytes:
        return _encode({"version": "1", "id": self.cluster_id})

    @classmethod
    def from_json(cls, data: bytes) -> "ClusterId":
        with _reading("a cluster's id", data):
            return cls(str(_object(data)["id"]))


class EntityConfig(NamedTuple):
    config: Mapping[str, str]

    def to_json(self) -> bytes:
        return _encode({"version": 1, "config": self.config})

    @classmethod
    def from_json(cls, data: bytes) -> "EntityConfig":
        with _reading("a config", data, is_secret=True):
            # Kafka creates some of these znodes without content.
            config = cast(dict[str, Json], _object(data).get("config") or {}) if data else {}
            return cls({name: str(value) for name, value in config.items()})


class ConfigChange(NamedTuple):
    #: The part of the path after ``/config/``: ``topics/T``, ``brokers/N``, ``users/U/clients/C``.
    entity_path: str

    def to_json(self) -> bytes:
        return _encode({"version": 2, "entity_path": self.entity_path})

    @classmethod
    def from_json(cls, data: bytes) -> "ConfigChange":
        with _reading("a change of configs", data):
            return cls(str(_object(data)["entity_path"]))


class Reassignment(NamedTuple):
    """A requested reassignment: the replicas that each partition is to have."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]

    def to_json(self) -> bytes:
        partitions = [
            {"topic": topic, "partition": partition, "replicas": replicas}
            for (topic, partition), replicas in self.replicas.items()
        ]
        return _encode({"version": 1, "partitions": partitions})

    @classmethod
    def from_json(cls, data: bytes) -> "Reassignment":
        with _reading("a reassignment", data):
            entries = cast(list[dict[str, Json]], _object(data)["partitions"])
            return cls({_topic_partition(cast(Json, entry)): _ints(entry["replicas"]) for entry in entries})


class PartitionSet(NamedTuple):
    partitions: frozenset[TopicPartition]

    @classmethod
    def of(cls, partitions: Iterable[TopicPartition]) -> "PartitionSet":
        return cls(frozenset(partitions))

    def to_json(self) -> bytes:
        partitions = [{"topic": topic, "partition": partition} for topic, partition in sorted(self.partitions)]
        return _encode({"version": 1, "partitions": partitions})

    @classmethod
    def from_json(cls, data: bytes) -> "PartitionSet":
        with _reading("a set of partitions", data):
            return cls.of(_topic_partition(entry) for entry in cast(list[Json], _object(data)["partitions"]))


class LogDirFailure(NamedTuple):
    broker_id: int

    def to_json(self) -> bytes:
        return _encode({"version": 1, "broker": self.broker_id, "event": 1})

    @classmethod
    def from_json(cls, data: bytes) -> "LogDirFailure":
        with _reading("a log dir's failure", data):
            return cls(_int(_object(data)["broker"]))


class ProducerIdBlock(NamedTuple):
    """The block of producer ids that a broker reserved last; both ends are included."""

    broker_id: int
    first_producer_id: int
    last_producer_id: int

    def to_json(self) -> bytes:
        return _encode(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first_producer_id),
                "block_end": str(self.last_producer_id),
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> "ProducerIdBlock":
        with _reading("a block of producer ids", data):
            value = _object(data)
            return cls(_int(value["broker"]), _int(value["block_start"]), _int(value["block_end"]))
