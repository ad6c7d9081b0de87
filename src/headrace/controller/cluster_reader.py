"""What the controller reads of the tree, and what it watches there.

A watch tells once that something has changed, not what. So every change is an event, and whoever handles it reads again
with the next watch: what changed in between is in what is read, and of what comes later there is another event. Of one
path there is at most one event in the queue, however often it changes.

Watchers are methods of one object, so that one that is set twice is told once. They stay behind when we are no longer
controller; events that they make then are ignored.

What cannot be understood in one znode is logged and left out: a topic that somebody spoilt by hand may not stop the
others.
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
    #: Of the notifications.
    paths: list[str]
    partitions: set[TopicPartition]


class LogDirFailures(NamedTuple):
    paths: list[str]
    brokers: set[int]


class ClusterReader:
    def __init__(self, coordination: Coordination, put: Callable[[Event], None]) -> None:
        """``put`` is given an event for every change of what was read."""
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
        """Without those that are not there any more, and those that cannot be read."""

        async def read(topic: str) -> tuple[str, TopicAssignment | None]:
            found = await self._get(topic_path(topic), TopicAssignment.from_json, self._topic_changed)
            return topic, None if found is None else found[0]

        return {topic: found for topic, found in await pipelined(read, topics) if found is not None}

    async def unclean_topics(self, topics: Iterable[str]) -> dict[str, bool]:
        """Those that say themselves whether an unclean election is allowed."""

        async def read(topic: str) -> tuple[str, str | None]:
            found = await self._get(topic_config_path(topic), EntityConfig.from_json)
            return topic, None if found is None else found[0].config.get(UNCLEAN_ELECTION)

        configured = await pipelined(read, topics)
        return {topic: value.strip().lower() == "true" for topic, value in configured if value is not None}

    # What is wished for

    async def topics_to_delete(self) -> list[str]:
        return await self._coordination.children(DELETE_TOPICS, watch=self._deletions_changed)

    async def reassignment(self) -> Mapping[TopicPartition, Sequence[int]] | None:
        """None if there is none.

        :raises MalformedZnodeError: if it cannot be read.
        """
        found = await self._wish(REASSIGN_PARTITIONS, self._reassignment_changed)
        return None if found is None else Reassignment.from_json(found).replicas

    async def preferred_election(self) -> frozenset[TopicPartition] | None:
        """None if there is none.

        :raises MalformedZnodeError: if it cannot be read.
        """
        found = await self._wish(PREFERRED_REPLICA_ELECTION, self._preferred_election_changed)
        return None if found is None else PartitionSet.from_json(found).partitions

    async def _wish(self, path: str, watch: Watcher) -> bytes | None:
        """Only ``exists`` watches what is not there."""
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
            logger.error("%s is ignored: %s", path, error)
            return None

    # Watchers

    def _brokers_changed(self, _: WatchEvent) -> None:
        self._put(BrokerChange())

    def _broker_changed(self, event: WatchEvent) -> None:
        # That one is gone is known from the list.
        if event.type is EventType.CHANGED:
            self._put(BrokerModifications(int(_name(event))))

    def _topics_changed(self, _: WatchEvent) -> None:
        self._put(TopicChange())

    def _topic_changed(self, event: WatchEvent) -> None:
        # Even that it is gone: the list does not tell if there is another of its name already.
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
