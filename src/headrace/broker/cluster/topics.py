"""The topics of a cluster: any broker may write a topic to the tree, and only the controller acts on it.

The broker that is asked writes ``/brokers/topics/T`` with the assignment, and ``/config/topics/T``. The controller
watches these znodes and elects the leaders. A deletion is a znode in ``/admin/delete_topics``. A moment later the
metadata of every broker shows the result; :meth:`ClusterTopics.wait_until_applied` waits for it.

With Apache Kafka on ZooKeeper only the controller creates and deletes topics. Newer Kafka brokers forward such requests
to the controller, so today's clients send them to any broker. Here every broker serves them.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from random import Random
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from headrace.broker.cluster.topic_propagation import wait_for_other_brokers
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.topic import validate_topic
from headrace.broker.topics import Topics
from headrace.controller.placement import PlacementOptions
from headrace.controller.topic_rules import (
    NewTopic,
    Topic,
    first_state,
    metric_name,
    plan_growth,
    plan_topic,
)
from headrace.coordination import retried_changes
from headrace.coordination.interface import (
    BadVersionError,
    CoordinationError,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    Stat,
    WatchEvent,
)
from headrace.coordination.paths import delete_topic_path, topic_config_path, topic_path
from headrace.coordination.znodes import EntityConfig, TopicAssignment, random_uuid
from headrace.protocol.errors import (
    ReassignmentInProgress,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from headrace.runtime.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from headrace.broker.cluster.config_changes import ConfigChanges
    from headrace.broker.cluster.links import Links
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.coordination.interface import Coordination
    from headrace.runtime.timer import Timer

P = ParamSpec("P")
R = TypeVar("R")

#: How long a Metadata request waits for a topic that it creates.
_AUTO_CREATE_WAIT_MS = 1_000
#: How long DeleteTopics waits until all replicas are deleted, after all brokers have removed the topic's metadata.
_REMOVAL_WAIT_MS = 2_000


def _times_out_without_zookeeper(
    method: Callable[Concatenate[ClusterTopics, P], Awaitable[R]],
) -> Callable[Concatenate[ClusterTopics, P], Coroutine[Any, Any, R]]:
    """Raises RequestTimedOut while ZooKeeper does not answer. The change may be made or not, so clients try again."""

    @wraps(method)
    async def run(self: ClusterTopics, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await method(self, *args, **kwargs)
        except CoordinationError as error:
            raise RequestTimedOut(f"ZooKeeper did not answer; the change may be made or not: {error}") from error

    return run


class ClusterTopics(Topics):
    are_replicated = True
    #: Topics are written side by side, so that the controller is notified of many at once.
    created_together = 500

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        coordination: Coordination,
        metadata: MetadataCache,
        configs: ConfigChanges,
        links: Links,
        timer: Timer,
        random: Random | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._coordination = coordination
        self._metadata = metadata
        self._configs = configs
        self._links = links
        self._random = random or Random(os.urandom(8))
        #: Topics that were created here and are not in the metadata yet, by metric name.
        self._just_created: dict[str, str] = {}
        #: Topics that are being deleted, and whose replicas were all on live brokers.
        self._removed_soon: set[str] = set()
        self._delayed: Purgatory[str] = Purgatory("Topic", timer)

    # -- creating, growing, deleting

    @_times_out_without_zookeeper
    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        config = self._config
        topic = plan_topic(
            new,
            self._placement_options(),
            twin=self._twin(new.name),
            defaults=(config.int("num.partitions"), config.int("default.replication.factor")),
            check_configs=lambda configs: validate_topic(configs, config),
        )
        if not validate_only:
            # Before it is written, because another request may create a topic with the same metric name meanwhile.
            self._just_created[metric_name(topic.name)] = topic.name
            try:
                await self._write(topic)
            except BaseException:
                self._just_created.pop(metric_name(topic.name), None)
                raise
        return topic

    async def create_automatically(self, name: str) -> Topic:
        topic = await self.create(NewTopic(name))
        await self.wait_until_applied({name: len(topic.assignment)}, _AUTO_CREATE_WAIT_MS)
        return topic

    async def _write(self, topic: Topic) -> None:
        """Writes both znodes in one transaction, so that a topic is never seen without its settings."""
        config_path, content = topic_config_path(topic.name), EntityConfig(topic.configs).to_json()

        async def is_done() -> bool:
            with suppress(UnknownTopicOrPartition):
                return (await self._read(topic.name))[0].topic_id == topic.topic_id
            return False

        write_topic = Create(topic_path(topic.name), topic.znode.to_json())
        write_configs: Operation = Create(config_path, content)
        while True:
            try:
                await retried_changes.multi(self._coordination, [write_configs, write_topic], is_done)
                return
            except NodeExistsError as error:
                if error.operation_index == 1 or await self._coordination.exists(topic_path(topic.name)):
                    raise TopicAlreadyExists(f"topic {topic.name!r} already exists") from None
                write_configs = SetData(config_path, content)  # a deleted topic of this name has left its settings
            except NoNodeError:
                write_configs = Create(config_path, content)

    @_times_out_without_zookeeper
    async def add_partitions(
        self, name: str, count: int, given: Sequence[tuple[int, ...]] | None, *, validate_only: bool = False
    ) -> Topic:
        while True:
            assigned, stat = await self._read(name)
            if assigned.adding_replicas or assigned.removing_replicas:
                raise ReassignmentInProgress(f"partitions of {name!r} are being reassigned")
            assignment = tuple(assigned.partitions[index] for index in range(len(assigned.partitions)))
            topic = Topic(name, assigned.topic_id or random_uuid(), assignment, tuple(map(first_state, assignment)), {})
            grown = plan_growth(topic, count, given, self._placement_options())
            if validate_only:
                return grown
            znode = grown.znode._replace(topic_id=assigned.topic_id)
            with suppress(BadVersionError):  # another broker wrote first: read again
                await retried_changes.set_data(
                    self._coordination, topic_path(name), znode.to_json(), version=stat.version
                )
                return grown

    @_times_out_without_zookeeper
    async def delete(self, name: str) -> None:
        if await self._coordination.exists(topic_path(name)) is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        if self._has_live_replicas_only(name):
            self._removed_soon.add(name)
        with suppress(NodeExistsError):  # the deletion is requested already
            await retried_changes.create_persistent(self._coordination, delete_topic_path(name), b"")

    def _has_live_replicas_only(self, name: str) -> bool:
        metadata = self._metadata
        topic = metadata.get(name)
        return topic is not None and all(
            replica in metadata.nodes for partition in topic.partitions for replica in partition.replicas
        )

    async def _read(self, name: str) -> tuple[TopicAssignment, Stat]:
        try:
            data, stat = await self._coordination.get(topic_path(name))
        except NoNodeError:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}") from None
        return TopicAssignment.from_json(data), stat

    def _placement_options(self) -> PlacementOptions:
        """Placement begins at a random broker, so that not all small topics are on the first brokers."""
        nodes = self._metadata.nodes
        start, shift = (self._random.randrange(max(1, len(nodes))) for _ in range(2))
        return PlacementOptions(sorted(nodes), {node.node_id: node.rack for node in nodes.values()}, start, shift)

    def _twin(self, name: str) -> str | None:
        return self._metadata.twin_of(name) or self._just_created.get(metric_name(name))

    # -- settings

    def configs_of(self, name: str) -> Mapping[str, str]:
        return self._configs.of_topic(name)

    async def stored_configs(self, name: str) -> Mapping[str, str]:
        self._metadata.named(name)
        return await self._configs.read("topics", name)

    @_times_out_without_zookeeper
    async def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        await self._configs.write("topics", name, configs)

    # -- waiting

    async def wait_until_applied(
        self, made: Mapping[str, int], timeout_ms: int, *, gone: Sequence[str] = ()
    ) -> set[str]:
        metadata = self._metadata

        def is_late(name: str) -> bool:
            topic = metadata.get(name)
            if name in gone:
                return topic is not None
            count = made[name]
            return topic is None or len(topic.partitions) < count or any(p.leader_id < 0 for p in topic.partitions)

        names = [*made, *gone]
        if names and timeout_ms > 0:
            waiting = _Waiting(lambda: not any(map(is_late, names)), asyncio.get_running_loop().create_future())
            if not self._delayed.try_complete_else_watch(waiting, names, timeout_ms):
                await waiting.done
        return set(filter(is_late, names))

    async def wait_until_propagated(
        self, made: Mapping[str, int], timeout_ms: int, *, gone: Sequence[str] = ()
    ) -> None:
        others = [broker_id for broker_id in self._metadata.nodes if broker_id != self._broker_id]
        await wait_for_other_brokers(self._links, others, made, gone, timeout_ms)

    async def wait_until_removed(self, names: Sequence[str], timeout_ms: int) -> None:
        """A topic leaves the tree when all its replicas are deleted. Topics with replicas on brokers that are not alive
        are not waited for."""
        removed_soon = self._removed_soon.intersection(names)
        self._removed_soon -= removed_soon
        if not removed_soon:
            return  # a request that has not waited yet is not a task, and asyncio.timeout needs a task
        with suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_ms, _REMOVAL_WAIT_MS) / 1000):
                await asyncio.gather(*map(self._removed, removed_soon))

    async def _removed(self, name: str) -> None:
        while True:
            changed = asyncio.get_running_loop().create_future()
            watch = partial(_set, changed)
            if await self._coordination.exists(topic_path(name), watch=watch) is None:
                return
            await changed

    def metadata_changed(self, names: Sequence[str]) -> None:
        """The metadata of these topics has changed."""
        for name in names:
            self._just_created.pop(metric_name(name), None)
            self._delayed.check_and_complete(name)


def _set(future: Future[None], _: WatchEvent) -> None:
    if not future.done():
        future.set_result(None)


class _Waiting(DelayedOperation):
    def __init__(self, is_ready: Callable[[], bool], done: Future[None]) -> None:
        self.done = done
        self._is_ready = is_ready

    def try_complete(self) -> bool:
        return self._is_ready() and self.force_complete()

    def on_complete(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
