"""Topics of a cluster: wishes are written to the tree, and the controller makes them come true.

``/brokers/topics/T`` with the assignment and ``/config/topics/T`` are written by whoever is asked. Who leads what is
for the controller to decide, which watches those znodes. A deletion is a znode in ``/admin/delete_topics``. What has
come of it is in the metadata of every broker a moment later; :meth:`ClusterTopics.wait_for` waits for that.

Kafka on ZooKeeper lets only the controller be asked to make and delete topics, although any broker could do it as well.
Clients of today are used to asking anybody, as Kafka's brokers now hand such requests on; so here anybody does it.

Has the face of ``controller.topics.Topics``, which is for a broker alone; the rules are the same
(``controller/topic_rules.py``).
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

from headrace.broker.configs.topic import validate_topic
from headrace.controller.topic_rules import (
    NewTopic,
    PlacementOptions,
    Topic,
    check_name,
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
    from headrace.broker.broker import Broker
    from headrace.broker.cluster.config_changes import ConfigChanges

P = ParamSpec("P")
R = TypeVar("R")

#: How long somebody who asks for the metadata of a topic waits for it to be made.
_AUTO_CREATE_WAIT_MS = 1_000
#: How long DeleteTopics waits, when everybody has forgotten the topic, for all its replicas to be gone.
_REMOVAL_WAIT_MS = 2_000


def _timed_out_without_a_tree(
    method: Callable[Concatenate[ClusterTopics, P], Awaitable[R]],
) -> Callable[Concatenate[ClusterTopics, P], Coroutine[Any, Any, R]]:
    """While no ZooKeeper answers, nothing can be said of what was asked but that it takes long: clients try again."""

    @wraps(method)
    async def run(self: ClusterTopics, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await method(self, *args, **kwargs)
        except CoordinationError as error:
            raise RequestTimedOut(f"ZooKeeper did not answer, and it may be done or not: {error}") from error

    return run


class ClusterTopics:
    def __init__(self, broker: Broker, configs: ConfigChanges, random: Random | None = None) -> None:
        self._broker = broker
        self._coordination = broker.coordination
        self._configs = configs
        self._random = random or Random(os.urandom(8))
        #: Topics that were made here and are not in the metadata yet, by metric name.
        self._just_made: dict[str, str] = {}
        #: Topics that are being deleted, and whose replicas were all alive.
        self._soon_gone: set[str] = set()
        self._delayed: Purgatory[str] = Purgatory("Topic", broker.timer)

    check_name = staticmethod(check_name)

    # -- making, growing, deleting

    @_timed_out_without_a_tree
    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        config = self._broker.config
        topic = plan_topic(
            new,
            self._placement_options(),
            twin=self._twin(new.name),
            defaults=(config.int("num.partitions"), config.int("default.replication.factor")),
            check_configs=lambda configs: validate_topic(configs, config),
        )
        if not validate_only:
            # Before it is written: a twin of it may be asked for meanwhile.
            self._just_made[metric_name(topic.name)] = topic.name
            try:
                await self._write(topic)
            except BaseException:
                self._just_made.pop(metric_name(topic.name), None)
                raise
        return topic

    async def create_automatically(self, name: str) -> Topic:
        topic = await self.create(NewTopic(name))
        await self.wait_for({name: len(topic.assignment)}, _AUTO_CREATE_WAIT_MS)
        return topic

    async def _write(self, topic: Topic) -> None:
        """In one transaction, so that a topic is never seen without its configs."""
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
                write_configs = SetData(config_path, content)  # a topic of that name has left its own
            except NoNodeError:
                write_configs = Create(config_path, content)

    @_timed_out_without_a_tree
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
            with suppress(BadVersionError):  # somebody was faster: look again
                await retried_changes.set_data(
                    self._coordination, topic_path(name), znode.to_json(), version=stat.version
                )
                return grown

    @_timed_out_without_a_tree
    async def delete(self, name: str) -> None:
        if await self._coordination.exists(topic_path(name)) is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        if self._all_alive(name):
            self._soon_gone.add(name)
        with suppress(NodeExistsError):  # that is wanted already
            await retried_changes.create_persistent(self._coordination, delete_topic_path(name), b"")

    def _all_alive(self, name: str) -> bool:
        metadata = self._broker.metadata
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
        """Placement begins anywhere, so that small topics do not all sit on the first brokers."""
        nodes = self._broker.metadata.nodes
        start, shift = (self._random.randrange(max(1, len(nodes))) for _ in range(2))
        return PlacementOptions(sorted(nodes), {node.node_id: node.rack for node in nodes.values()}, start, shift)

    def _twin(self, name: str) -> str | None:
        return self._broker.metadata.twin_of(name) or self._just_made.get(metric_name(name))

    # -- settings

    def configs_of(self, name: str) -> Mapping[str, str]:
        """What is set for a topic, as far as we have heard."""
        return self._configs.of_topic(name)

    async def stored_configs(self, name: str) -> Mapping[str, str]:
        """The same, as it is in the tree."""
        self._broker.metadata.named(name)
        return await self._configs.read("topics", name)

    @_timed_out_without_a_tree
    async def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Settings that were checked already."""
        await self._configs.write("topics", name, configs)

    # -- waiting

    async def wait_for(self, made: Mapping[str, int], timeout_ms: int, *, gone: Sequence[str] = ()) -> set[str]:
        """Waits until topics have leaders for so many partitions, or are gone; those that are not so in time."""
        metadata = self._broker.metadata

        def is_late(name: str) -> bool:
            topic = metadata.get(name)
            if name in gone:
                return topic is not None
            count = made[name]
            return topic is None or len(topic.partitions) < count or any(p.leader_id < 0 for p in topic.partitions)

        names = [*made, *gone]
        if names and timeout_ms > 0:
            waiting = _Waiting(lambda: not any(map(is_late, names)), self._broker.loop.create_future())
            if not self._delayed.try_complete_else_watch(waiting, names, timeout_ms):
                await waiting.done
        return set(filter(is_late, names))

    async def wait_until_removed(self, names: Sequence[str], timeout_ms: int) -> None:
        """Waits, but not long, until topics are gone from the tree, so that they can be made again: all their replicas
        are gone then. Those on brokers that are away are not waited for."""
        soon_gone = self._soon_gone.intersection(names)
        self._soon_gone -= soon_gone
        if not soon_gone:
            return  # and the request may not have waited for anything yet: it is no task, and can have no timeout
        with suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_ms, _REMOVAL_WAIT_MS) / 1000):
                await asyncio.gather(*map(self._removed, soon_gone))

    async def _removed(self, name: str) -> None:
        while True:
            changed = self._broker.loop.create_future()
            watch = partial(_set, changed)
            if await self._coordination.exists(topic_path(name), watch=watch) is None:
                return
            await changed

    def changed(self, names: Sequence[str]) -> None:
        """The metadata of topics is new."""
        for name in names:
            self._just_made.pop(metric_name(name), None)
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
