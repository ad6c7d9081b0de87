"""Holds the parts of a broker that its replicas use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.purgatories import Purgatories
    from headrace.broker.runtime import BrokerRuntime
    from headrace.client.connection import Connection
    from headrace.coordination.interface import Coordination
    from headrace.log.log_manager import LogManager
    from headrace.log.partition_log import PartitionLog
    from headrace.replication.partitions import Partitions


class TopicSettings(Protocol):
    """The settings of topics that differ from the broker's."""

    def of_topic(self, name: str, /) -> Mapping[str, str]:
        """The topic's settings in memory."""

    async def read_new_topic(self, name: str, /) -> Mapping[str, str]:
        """Reads the settings of a topic that is new on this broker."""

    def read_again(self) -> None:
        """Reads all settings again as soon as the tree answers."""


class BrokerLinks(Protocol):
    """The connections to the other brokers."""

    async def connect(self, broker_id: int, purpose: str, /) -> Connection:
        """The open connection for a purpose. Raises BrokerUnreachable."""

    async def drop(self, broker_id: int, purpose: str, /) -> None:
        """Closes the connection for a purpose."""


class EpochFence(Protocol):
    """Rejects requests of controllers that have been replaced, and requests for an earlier registration."""

    def check(self, broker_epoch: int, controller_epoch: int, /) -> None: ...


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    broker_id: int
    config: BrokerConfig
    runtime: BrokerRuntime
    metadata: MetadataCache
    partitions: Partitions
    logs: LogManager
    purgatories: Purgatories
    coordination: Coordination
    configs: TopicSettings
    links: BrokerLinks
    fence: EpochFence
    #: Is called with a topic, a partition and whether this broker leads the partition now.
    on_leadership_changed: Callable[[str, int, bool], object]
    #: Is called before a log is deleted.
    on_log_deleted: Callable[[PartitionLog], object]
