"""Does what ``decisions.py`` yields: writes to the tree, and requests to the brokers.

States are written many in one ``multi``, and all of those are under way at once: they need not wait for each other, as
a session's calls are done in the order of their sending. A partition that is not as expected may not take others with
it. So where one is refused, those of its ``multi`` are written again, each for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from logging import getLogger
from typing import NamedTuple, TypeVar

from headrace.controller.decisions.broker_requests import Channel
from headrace.controller.decisions.context import ControllerContext, LiveBroker
from headrace.controller.decisions.effects import (
    ClearReassignments,
    DeleteTopic,
    Effect,
    ReadStates,
    Send,
    StateWrite,
    Steps,
    WriteStates,
    WriteTopic,
)
from headrace.controller.decisions.leader_elections import Leadership
from headrace.controller.fenced_writer import FencedWriter, pipelined
from headrace.coordination.interface import (
    BadVersionError,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    Stat,
)
from headrace.coordination.paths import (
    REASSIGN_PARTITIONS,
    delete_topic_path,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_config_path,
    topic_path,
)
from headrace.coordination.znodes import (
    MalformedZnodeError,
    PartitionState,
    Reassignment,
    TopicAssignment,
    TopicPartition,
)

logger = getLogger(__name__)

T = TypeVar("T")

#: Operations of a ``multi``: ZooKeeper takes a megabyte, and a path has up to 300 bytes.
_MAX_OPERATIONS = 500
#: States that are written together.
_BATCH_SIZE = 50
#: Somebody else may be changing the same at the same time, by hand.
_ATTEMPTS = 10


class WrittenState(NamedTuple):
    leadership: Leadership
    #: When it was written, in the tree's own time.
    zxid: int


async def read_written_states(
    coordination: Coordination, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, WrittenState | None]:
    """None where there is no state, or none that can be read."""

    async def read(partition: TopicPartition) -> tuple[TopicPartition, WrittenState | None]:
        path = partition_state_path(*partition)
        try:
            data, stat = await coordination.get(path)
            leadership = Leadership.of(PartitionState.from_json(data), stat.version)
            return partition, WrittenState(leadership, stat.mzxid)
        except NoNodeError:
            return partition, None
        except MalformedZnodeError as error:
            logger.error("%s cannot be read, so the partition has no leader: %s", path, error)
            return partition, None

    return dict(await pipelined(read, partitions))


async def read_states(
    coordination: Coordination, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Leadership | None]:
    written = await read_written_states(coordination, partitions)
    return {partition: None if state is None else state.leadership for partition, state in written.items()}


class EffectRunner:
    def __init__(self, tree: FencedWriter, channel: Channel, context: ControllerContext) -> None:
        self._tree = tree
        self._coordination = tree.coordination
        self._channel = channel
        self._context = context
        self._told_brokers: list[LiveBroker] | None = None

    async def run(self, steps: Steps[T]) -> T:
        """Performs the effects; what the steps return.

        :raises ControllerMoved: if we are not controller any more.
        """
        answer: object = None
        try:
            while True:
                try:
                    effect = steps.send(answer)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                answer = await self._perform(effect)
        finally:
            steps.close()
            self._tell_brokers()

    async def _perform(self, effect: Effect) -> object:
        match effect:
            case WriteStates(writes):
                return await self._write_states(writes)
            case ReadStates(partitions):
                return await read_states(self._coordination, partitions)
            case WriteTopic(topic, assignment):
                await self._write_topic(topic, assignment)
            case DeleteTopic(topic):
                await self._delete_topic(topic)
            case ClearReassignments(partitions):
                await self.clear_reassignments(partitions)
            case Send(requests):
                self._tell_brokers()
                for request in requests:
                    self._channel.send(request)
        return None

    def _tell_brokers(self) -> None:
        """The channel knows whom the context has, before it is given something for them."""
        brokers = list(self._context.brokers)
        if brokers != self._told_brokers:
            self._told_brokers = brokers
            self._channel.set_brokers(brokers)

    # States

    async def _write_states(self, writes: Sequence[StateWrite]) -> dict[TopicPartition, int | None]:
        """By partition its new version, or None."""
        batches = [writes[start : start + _BATCH_SIZE] for start in range(0, len(writes), _BATCH_SIZE)]
        fresh = {topic for topic in {one.partition[0] for one in writes if one.is_new} if self._is_fresh(topic)}
        operations = [[one for write in batch for one in _operations(write, fresh)] for batch in batches]
        written = await pipelined(self._write_together, list(zip(batches, operations, strict=True)))
        versions: dict[TopicPartition, int | None] = {}
        for batch, is_written in zip(batches, written, strict=True):
            for write in batch:
                versions[write.partition] = _version_after(write) if is_written else None
        alone = [write for batch, is_written in zip(batches, written, strict=True) if not is_written for write in batch]
        versions.update(await pipelined(self._write_alone, alone))
        return versions

    async def _write_together(self, batch: tuple[Sequence[StateWrite], Sequence[Operation]]) -> bool:
        writes, operations = batch
        try:
            # Of what is written together all or nothing is there.
            await self._tree.write(
                operations, lambda: self._tree.has(*_content(writes[-1]), _version_after(writes[-1]))
            )
        except (BadVersionError, NoNodeError, NodeExistsError):
            return False
        return True

    def _is_fresh(self, topic: str) -> bool:
        """None of its partitions has a state, so that there is no znode to have them below, either."""
        return not any(self._context.leadership(partition) for partition in self._context.partitions_of_topic(topic))

    async def _write_alone(self, write: StateWrite) -> tuple[TopicPartition, int | None]:
        is_written = await (self._make_state(write) if write.is_new else self._change_state(write))
        return write.partition, _version_after(write) if is_written else None

    async def _change_state(self, write: StateWrite) -> bool:
        path, data = _content(write)
        change = SetData(path, data, write.leadership.version)
        try:
            await self._tree.write([change], lambda: self._tree.has(path, data, _version_after(write)))
        except (BadVersionError, NoNodeError):
            return False
        return True

    async def _make_state(self, write: StateWrite) -> bool:
        path, data = _content(write)
        parent, state = Create(partition_path(*write.partition)), Create(path, data)
        operations: list[Operation] = [parent, state]
        for _ in range(_ATTEMPTS):
            try:
                await self._tree.write(operations, lambda: self._tree.has(path, data, 0))
            except NodeExistsError as error:
                if operations[error.operation_index - 1] is state:
                    return False
                operations = [state]
            except NoNodeError:
                if not await self._make_partitions_znode(write.partition[0]):
                    return False
                operations = [parent, state]
            else:
                return True
        return False

    async def _make_partitions_znode(self, topic: str) -> bool:
        """Whether it is there now; if not, there is no such topic."""
        path = partitions_path(topic)
        try:
            await self._tree.write([Create(path)], lambda: self._tree.exists(path))
        except NodeExistsError:
            return True
        except NoNodeError:
            return False
        return True

    # Topics

    async def _write_topic(self, topic: str, assignment: TopicAssignment) -> None:
        """Partitions that were added meanwhile, and that the context does not know of yet, stay."""
        path = topic_path(topic)
        for _ in range(_ATTEMPTS):
            try:
                content, stat = await self._coordination.get(path)
                data = _merged(content, assignment).to_json()
                is_written = partial(self._tree.has, path, data, stat.version + 1)
                await self._tree.write([SetData(path, data, stat.version)], is_written)
            except BadVersionError:
                continue
            except NoNodeError:
                logger.warning("topic %s was removed by somebody else while it was being reassigned", topic)
            return
        raise CoordinationError(f"{path} is changed by somebody else all the time")

    async def _delete_topic(self, topic: str) -> None:
        """All below it in parts, as there may be much; then the topic, its configs and the wish to delete it as one."""
        ends = (topic_path(topic), topic_config_path(topic), delete_topic_path(topic))
        for attempt in range(_ATTEMPTS):
            below = await self._below(topic_path(topic)) if attempt else self._expected_below(topic)
            there = await pipelined(self._tree.exists, ends)
            try:
                for start in range(0, len(below), _MAX_OPERATIONS):
                    await self._tree.delete_together(below[start : start + _MAX_OPERATIONS])
                await self._tree.delete_together([path for path, is_there in zip(ends, there, strict=True) if is_there])
            except (NoNodeError, NotEmptyError):
                continue
            return
        raise CoordinationError(f"the znodes of topic {topic} come and go")

    def _expected_below(self, topic: str) -> list[str]:
        """As :meth:`_below`, but what is there if all is as we have written it."""
        found = [
            partition for partition in self._context.partitions_of_topic(topic) if self._context.leadership(partition)
        ]
        paths = [path for one in found for path in (partition_state_path(*one), partition_path(*one))]
        return [*paths, partitions_path(topic)] if found else []

    async def _below(self, path: str) -> list[str]:
        """All that is below a znode, children before their parents."""
        level, found = [path], list[str]()
        while level:
            names = await pipelined(self._children, level)
            level = [f"{parent}/{name}" for parent, children in zip(level, names, strict=True) for name in children]
            found += level
        return found[::-1]

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._coordination.children(path)
        except NoNodeError:
            return []

    # Reassignments

    async def clear_reassignments(self, partitions: Iterable[TopicPartition]) -> None:
        """They need not be moved any more, if they are among those that ``/admin/reassign_partitions`` has."""
        ended = set(partitions)
        for _ in range(_ATTEMPTS):
            try:
                data, stat = await self._coordination.get(REASSIGN_PARTITIONS)
                before = Reassignment.from_json(data).replicas
                after = {partition: target for partition, target in before.items() if partition not in ended}
                if len(after) < len(before):
                    await self._write_reassignments(after, stat)
            except BadVersionError:
                continue
            except NoNodeError:
                pass  # nobody has asked for any move there
            except MalformedZnodeError as error:
                logger.warning("%s has no such content as it should, and goes: %s", REASSIGN_PARTITIONS, error)
                await self._tree.delete_znodes([REASSIGN_PARTITIONS])
            return

    async def _write_reassignments(self, moves: dict[TopicPartition, tuple[int, ...]], stat: Stat) -> None:
        if moves:
            data = Reassignment(moves).to_json()
            is_written = partial(self._tree.has, REASSIGN_PARTITIONS, data, stat.version + 1)
            await self._tree.write([SetData(REASSIGN_PARTITIONS, data, stat.version)], is_written)
            return

        async def is_gone() -> bool:
            return not await self._tree.exists(REASSIGN_PARTITIONS)

        await self._tree.write([Delete(REASSIGN_PARTITIONS, stat.version)], is_gone)


def _content(write: StateWrite) -> tuple[str, bytes]:
    """Its path, and what it is to have."""
    return partition_state_path(*write.partition), write.leadership.to_state().to_json()


def _version_after(write: StateWrite) -> int:
    return 0 if write.is_new else write.leadership.version + 1


def _operations(write: StateWrite, fresh: set[str]) -> list[Operation]:
    """``fresh`` are topics below which there is nothing yet; the first that is made takes its own out of them."""
    path, data = _content(write)
    if not write.is_new:
        return [SetData(path, data, write.leadership.version)]
    operations = [Create(partition_path(*write.partition)), Create(path, data)]
    if (topic := write.partition[0]) in fresh:
        fresh.remove(topic)
        return [Create(partitions_path(topic)), *operations]
    return [*operations]


def _merged(content: bytes, assignment: TopicAssignment) -> TopicAssignment:
    """The assignment as wanted, with partitions that only the znode has."""
    try:
        found = TopicAssignment.from_json(content)
    except MalformedZnodeError as error:
        logger.warning("a topic's znode is overwritten: %s", error)
        return assignment
    if found.topic_id != assignment.topic_id:
        # Another topic of that name: it has replaced ours, of which we shall hear.
        return found
    added = {index: replicas for index, replicas in found.partitions.items() if index not in assignment.partitions}
    return assignment._replace(partitions={**assignment.partitions, **added})
