"""Performs the effects that the decisions yield: writes to ZooKeeper, and sends requests to brokers.

Partition states are written in batches, one ``multi`` per batch. All batches are sent at once, without waiting for the
answers in between, because ZooKeeper performs the calls of a session in the order in which they were sent. A partition
whose znode is not as expected must not stop the other partitions. So when ZooKeeper rejects a batch, the states of that
batch are written again one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from logging import getLogger
from typing import TypeVar

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
from headrace.controller.decisions.unnoticed_restarts import WrittenState
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

#: Operations per ``multi``: ZooKeeper accepts one megabyte, and a path has up to 300 bytes.
_MAX_OPERATIONS = 500
#: States per ``multi``.
_BATCH_SIZE = 50
#: Attempts per write, because somebody may be changing the same znode by hand.
_ATTEMPTS = 10


async def read_written_states(
    coordination: Coordination, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, WrittenState | None]:
    """Reads ``state`` znodes; None for a partition whose znode does not exist or is malformed."""

    async def read(partition: TopicPartition) -> tuple[TopicPartition, WrittenState | None]:
        path = partition_state_path(*partition)
        try:
            data, stat = await coordination.get(path)
            leadership = Leadership.of(PartitionState.from_json(data), stat.version)
            return partition, WrittenState(leadership, stat.mzxid)
        except NoNodeError:
            return partition, None
        except MalformedZnodeError as error:
            logger.error("%s has malformed content, so the partition has no leader: %s", path, error)
            return partition, None

    return dict(await pipelined(read, partitions))


async def read_states(
    coordination: Coordination, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Leadership | None]:
    written = await read_written_states(coordination, partitions)
    return {partition: None if state is None else state.leadership for partition, state in written.items()}


class EffectRunner:
    """Performs effects in one controller epoch."""

    def __init__(self, writer: FencedWriter, channel: Channel, context: ControllerContext) -> None:
        self._writer = writer
        self._coordination = writer.coordination
        self._channel = channel
        self._context = context
        self._channel_brokers: list[LiveBroker] | None = None

    async def run(self, steps: Steps[T]) -> T:
        """Performs the effects of the steps; returns the result of the steps.

        :raises ControllerMoved: if another broker is the controller now.
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
            self._update_channel()

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
                self._update_channel()
                for request in requests:
                    self._channel.send(request)
        return None

    def _update_channel(self) -> None:
        """Gives the live brokers of the context to the channel, before the channel gets requests for them."""
        brokers = list(self._context.brokers)
        if brokers != self._channel_brokers:
            self._channel_brokers = brokers
            self._channel.set_brokers(brokers)

    # States

    async def _write_states(self, writes: Sequence[StateWrite]) -> dict[TopicPartition, int | None]:
        """Writes states; returns the new version of each znode, or None where the znode was not as expected."""
        batches = [writes[start : start + _BATCH_SIZE] for start in range(0, len(writes), _BATCH_SIZE)]
        new_topics = {topic for topic in {one.partition[0] for one in writes if one.is_new} if self._is_new(topic)}
        operations = [[one for write in batch for one in _operations(write, new_topics)] for batch in batches]
        written = await pipelined(self._write_together, list(zip(batches, operations, strict=True)))
        versions: dict[TopicPartition, int | None] = {}
        for batch, is_written in zip(batches, written, strict=True):
            for write in batch:
                versions[write.partition] = _version_after(write) if is_written else None
        rejected = [
            write for batch, is_written in zip(batches, written, strict=True) if not is_written for write in batch
        ]
        versions.update(await pipelined(self._write_one, rejected))
        return versions

    async def _write_together(self, batch: tuple[Sequence[StateWrite], Sequence[Operation]]) -> bool:
        writes, operations = batch
        try:
            # A multi is atomic, so the last write shows whether all of them happened.
            await self._writer.write(
                operations, lambda: self._writer.contains(*_content(writes[-1]), _version_after(writes[-1]))
            )
        except (BadVersionError, NoNodeError, NodeExistsError):
            return False
        return True

    def _is_new(self, topic: str) -> bool:
        """Whether no partition of the topic has a state. Then the parent znode of the partitions is missing, too."""
        return not any(self._context.leadership(partition) for partition in self._context.partitions_of_topic(topic))

    async def _write_one(self, write: StateWrite) -> tuple[TopicPartition, int | None]:
        is_written = await (self._create_state(write) if write.is_new else self._change_state(write))
        return write.partition, _version_after(write) if is_written else None

    async def _change_state(self, write: StateWrite) -> bool:
        path, data = _content(write)
        change = SetData(path, data, write.leadership.version)
        try:
            await self._writer.write([change], lambda: self._writer.contains(path, data, _version_after(write)))
        except (BadVersionError, NoNodeError):
            return False
        return True

    async def _create_state(self, write: StateWrite) -> bool:
        path, data = _content(write)
        parent, state = Create(partition_path(*write.partition)), Create(path, data)
        operations: list[Operation] = [parent, state]
        for _ in range(_ATTEMPTS):
            try:
                await self._writer.write(operations, lambda: self._writer.contains(path, data, 0))
            except NodeExistsError as error:
                if operations[error.operation_index - 1] is state:
                    return False
                operations = [state]
            except NoNodeError:
                if not await self._create_partitions_znode(write.partition[0]):
                    return False
                operations = [parent, state]
            else:
                return True
        return False

    async def _create_partitions_znode(self, topic: str) -> bool:
        """Returns whether the znode exists now. If not, the topic does not exist."""
        path = partitions_path(topic)
        try:
            await self._writer.write([Create(path)], lambda: self._writer.exists(path))
        except NodeExistsError:
            return True
        except NoNodeError:
            return False
        return True

    # Topics

    async def _write_topic(self, topic: str, assignment: TopicAssignment) -> None:
        """Writes a topic's assignment. Keeps partitions that were added meanwhile and are not in the context yet."""
        path = topic_path(topic)
        for _ in range(_ATTEMPTS):
            try:
                content, stat = await self._coordination.get(path)
                data = _merged(content, assignment).to_json()
                is_written = partial(self._writer.contains, path, data, stat.version + 1)
                await self._writer.write([SetData(path, data, stat.version)], is_written)
            except BadVersionError:
                continue
            except NoNodeError:
                logger.warning("topic %s was deleted outside of the controller while it was being reassigned", topic)
            return
        raise CoordinationError(f"{path} was changed by somebody else at each of {_ATTEMPTS} attempts to write it")

    async def _delete_topic(self, topic: str) -> None:
        """Deletes the znodes below the topic in several transactions, because there may be many. Then deletes the
        topic, its configs and its znode in ``/admin/delete_topics`` in one transaction.
        """
        last = (topic_path(topic), topic_config_path(topic), delete_topic_path(topic))
        for attempt in range(_ATTEMPTS):
            below = await self._below(topic_path(topic)) if attempt else self._expected_below(topic)
            existing = await pipelined(self._writer.exists, last)
            try:
                for start in range(0, len(below), _MAX_OPERATIONS):
                    await self._writer.delete_together(below[start : start + _MAX_OPERATIONS])
                await self._writer.delete_together(
                    [path for path, exists in zip(last, existing, strict=True) if exists]
                )
            except (NoNodeError, NotEmptyError):
                continue
            return
        raise CoordinationError(
            f"the znodes of topic {topic} were changed by somebody else at each of {_ATTEMPTS} attempts to delete them"
        )

    def _expected_below(self, topic: str) -> list[str]:
        """The znodes below a topic if everything is as the controller wrote it; saves reading them (:meth:`_below`)."""
        found = [
            partition for partition in self._context.partitions_of_topic(topic) if self._context.leadership(partition)
        ]
        paths = [path for one in found for path in (partition_state_path(*one), partition_path(*one))]
        return [*paths, partitions_path(topic)] if found else []

    async def _below(self, path: str) -> list[str]:
        """Reads the paths of all znodes below a znode, children before their parents."""
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
        """Removes partitions from ``/admin/reassign_partitions``, and deletes the znode when no partition is left."""
        cleared = set(partitions)
        for _ in range(_ATTEMPTS):
            try:
                data, stat = await self._coordination.get(REASSIGN_PARTITIONS)
                before = Reassignment.from_json(data).replicas
                after = {partition: target for partition, target in before.items() if partition not in cleared}
                if len(after) < len(before):
                    await self._write_reassignments(after, stat)
            except BadVersionError:
                continue
            except NoNodeError:
                pass  # the znode requests no reassignment
            except MalformedZnodeError as error:
                logger.warning("%s has malformed content and is deleted: %s", REASSIGN_PARTITIONS, error)
                await self._writer.delete_znodes([REASSIGN_PARTITIONS])
            return

    async def _write_reassignments(self, replicas: dict[TopicPartition, tuple[int, ...]], stat: Stat) -> None:
        if replicas:
            data = Reassignment(replicas).to_json()
            is_written = partial(self._writer.contains, REASSIGN_PARTITIONS, data, stat.version + 1)
            await self._writer.write([SetData(REASSIGN_PARTITIONS, data, stat.version)], is_written)
            return

        async def is_deleted() -> bool:
            return not await self._writer.exists(REASSIGN_PARTITIONS)

        await self._writer.write([Delete(REASSIGN_PARTITIONS, stat.version)], is_deleted)


def _content(write: StateWrite) -> tuple[str, bytes]:
    """The path of the ``state`` znode and its new content."""
    return partition_state_path(*write.partition), write.leadership.to_state().to_json()


def _version_after(write: StateWrite) -> int:
    return 0 if write.is_new else write.leadership.version + 1


def _operations(write: StateWrite, new_topics: set[str]) -> list[Operation]:
    """
    :param new_topics: topics that need the parent znode of their partitions. The first partition of a topic creates the
        parent and removes the topic from the set.
    """
    path, data = _content(write)
    if not write.is_new:
        return [SetData(path, data, write.leadership.version)]
    operations = [Create(partition_path(*write.partition)), Create(path, data)]
    if (topic := write.partition[0]) in new_topics:
        new_topics.remove(topic)
        return [Create(partitions_path(topic)), *operations]
    return [*operations]


def _merged(content: bytes, assignment: TopicAssignment) -> TopicAssignment:
    """The new assignment, plus the partitions that only the znode has."""
    try:
        found = TopicAssignment.from_json(content)
    except MalformedZnodeError as error:
        logger.warning("the malformed znode of a topic is overwritten: %s", error)
        return assignment
    if found.topic_id != assignment.topic_id:
        # The topic was deleted and created again. A watch tells the controller about the new topic.
        return found
    added = {index: replicas for index, replicas in found.partitions.items() if index not in assignment.partitions}
    return assignment._replace(partitions={**assignment.partitions, **added})
