"""Holds the parts of a broker that its replicas use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.cluster.config_changes import ConfigChanges
    from headrace.broker.cluster.controller_fence import ControllerFence
    from headrace.broker.cluster.links import Links
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.purgatories import Purgatories
    from headrace.broker.runtime import BrokerRuntime
    from headrace.coordination.interface import Coordination
    from headrace.log.log_manager import LogManager
    from headrace.log.partition_log import PartitionLog
    from headrace.replication.partitions import Partitions


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
    #: The settings of topics.
    configs: ConfigChanges
    #: The connections to the other brokers.
    links: Links
    fence: ControllerFence
    #: Is called with a topic, a partition and whether this broker leads the partition now.
    on_leadership_changed: Callable[[str, int, bool], object]
    #: Is called before a log is deleted.
    on_log_deleted: Callable[[PartitionLog], object]
