"""Reads the cluster from ZooKeeper for the controller, and sets watches.

A watch says once that a znode has changed, but not what has changed. So every change becomes an event. The controller
processes the event by reading the znode again with a new watch. The read includes all changes up to then; a later
change produces another event. The queue holds at most one event per watched path.

The watchers are methods of one object, so that a watcher that is set twice is called once. When the broker is no longer
the controller, its watchers stay set; the events that they produce are ignored.

A znode with malformed content is logged and left out. A topic that somebody damaged by hand must not stop the other
topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import getLogger
from typing import NamedTuple, TypeVar

from headrace.controller.decisions.context import LiveBroker
from headrace.controller.events import (
    BrokerChange,
    BrokerModifications,
    Event,
    IsrChangeNotification,
    LogDirEventNotification,
    PartitionModifications,
    PartitionReassignment,
    PreferredReplicaLeaderElection,
    TopicChange,
    TopicDeletion,
)
from headrace.controller.fenced_writer import pipelined
from headrace.coordination.interface import Coordination, EventType, NoNodeError, Stat, Watcher, WatchEvent
from headrace.coordination.paths import (
    BROKER_IDS,
    DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    TOPICS,
    broker_path,
    topic_config_path,
    topic_path,
)
from headrace.coordination.znodes import (
    BrokerRegistration,
    EntityConfig,
    LogDirFailure,
    MalformedZnodeError,
    PartitionSet,
    Reassignment,
    TopicAssignment,
    TopicPartition,
)

logger = getLogger(__name__)

T = TypeVar("T")
UNCLEAN_ELECTION = "unclean.leader.election.enable"


class IsrChanges(NamedTuple):
    #: The paths of the notifications.
    paths: list[str]
    partitions: set[TopicPartition]


class LogDirFailures(NamedTuple):
    paths: list[str]
    brokers: set[int]


class ClusterReader:
    def __init__(self, coordination: Coordination, put: Callable[[Event], None]) -> None:
        """:param put: is called with an event for every change of a znode that was read."""
        self._coordination = coordination
        self._put = put

    # Brokers and topics

    async def brokers(self) -> list[LiveBroker]:
        async def read(broker_id: int) -> LiveBroker | None:
            path = broker_path(broker_id)
            found = await self._get(path, BrokerRegistration.from_json, self._broker_changed)
            return None if found is None else LiveBroker(broker_id, found[1].czxid, found[0])

        names = await self._coordination.children(BROKER_IDS, watch=self._brokers_changed)
        read_brokers = await pipelined(read, sorted(int(name) for name in names if name.isdecimal()))
        return [broker for broker in read_brokers if broker is not None]

    async def topics(self) -> list[str]:
        return await self._coordination.children(TOPICS, watch=self._topics_changed)

    async def assignments(self, topics: Iterable[str]) -> dict[str, TopicAssignment]:
        """The assignments of topics, without the topics that do not exist any more or have malformed content."""

        async def read(topic: str) -> tuple[str, TopicAssignment | None]:
            found = await self._get(topic_path(topic), TopicAssignment.from_json, self._topic_changed)
            return topic, None if found is None else found[0]

        return {topic: found for topic, found in await pipelined(read, topics) if found is not None}

    async def unclean_topics(self, topics: Iterable[str]) -> dict[str, bool]:
        """``unclean.leader.election.enable`` of the topics that set it."""

        async def read(topic: str) -> tuple[str, str | None]:
            found = await self._get(topic_config_path(topic), EntityConfig.from_json)
            return topic, None if found is None else found[0].config.get(UNCLEAN_ELECTION)

        configured = await pipelined(read, topics)
        return {topic: value.strip().lower() == "true" for topic, value in configured if value is not None}

    # Requests that were written to ZooKeeper

    async def topics_to_delete(self) -> list[str]:
        return await self._coordination.children(DELETE_TOPICS, watch=self._deletions_changed)

    async def reassignment(self) -> Mapping[TopicPartition, Sequence[int]] | None:
        """The requested replicas of each partition; None if the znode does not exist.

        :raises MalformedZnodeError:
        """
        found = await self._read_request(REASSIGN_PARTITIONS, self._reassignment_changed)
        return None if found is None else Reassignment.from_json(found).replicas

    async def preferred_election(self) -> frozenset[TopicPartition] | None:
        """The partitions that are to get their preferred leader; None if the znode does not exist.

        :raises MalformedZnodeError:
        """
        found = await self._read_request(PREFERRED_REPLICA_ELECTION, self._preferred_election_changed)
        return None if found is None else PartitionSet.from_json(found).partitions

    async def _read_request(self, path: str, watch: Watcher) -> bytes | None:
        """Uses ``exists``, because only ``exists`` can watch a znode that does not exist."""
        if await self._coordination.exists(path, watch=watch) is None:
            return None
        try:
            return (await self._coordination.get(path))[0]
        except NoNodeError:
            return None

    # Notifications

    async def isr_change_paths(self) -> list[str]:
        names = await self._coordination.children(ISR_CHANGES, watch=self._isrs_changed)
        return [f"{ISR_CHANGES}/{name}" for name in names]

    async def isr_changes(self) -> IsrChanges:
        paths = await self.isr_change_paths()
        found = await pipelined(lambda path: self._get(path, PartitionSet.from_json), paths)
        return IsrChanges(paths, {partition for one in found if one is not None for partition in one[0].partitions})

    async def log_dir_failure_paths(self) -> list[str]:
        names = await self._coordination.children(LOG_DIR_EVENTS, watch=self._log_dirs_changed)
        return [f"{LOG_DIR_EVENTS}/{name}" for name in names]

    async def log_dir_failures(self) -> LogDirFailures:
        paths = await self.log_dir_failure_paths()
        found = await pipelined(lambda path: self._get(path, LogDirFailure.from_json), paths)
        return LogDirFailures(paths, {one[0].broker_id for one in found if one is not None})

    async def _get(
        self, path: str, decode: Callable[[bytes], T], watch: Watcher | None = None
    ) -> tuple[T, Stat] | None:
        try:
            data, stat = await self._coordination.get(path, watch=watch)
            return decode(data), stat
        except NoNodeError:
            return None
        except MalformedZnodeError as error:
            logger.error("%s has malformed content and is ignored: %s", path, error)
            return None

    # Watchers

    def _brokers_changed(self, _: WatchEvent) -> None:
        self._put(BrokerChange())

    def _broker_changed(self, event: WatchEvent) -> None:
        # The watch on the list of brokers reports a broker that is gone.
        if event.type is EventType.CHANGED:
            self._put(BrokerModifications(int(_name(event))))

    def _topics_changed(self, _: WatchEvent) -> None:
        self._put(TopicChange())

    def _topic_changed(self, event: WatchEvent) -> None:
        # Reports a deletion too: the list of topics looks unchanged if the topic was created again in the meantime.
        self._put(PartitionModifications(_name(event)))

    def _deletions_changed(self, _: WatchEvent) -> None:
        self._put(TopicDeletion())

    def _reassignment_changed(self, _: WatchEvent) -> None:
        self._put(PartitionReassignment())

    def _preferred_election_changed(self, _: WatchEvent) -> None:
        self._put(PreferredReplicaLeaderElection())

    def _isrs_changed(self, _: WatchEvent) -> None:
        self._put(IsrChangeNotification())

    def _log_dirs_changed(self, _: WatchEvent) -> None:
        self._put(LogDirEventNotification())


def _name(event: WatchEvent) -> str:
    return event.path.rpartition("/")[2]
