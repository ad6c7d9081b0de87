"""Reads and writes the ``state`` znodes of partitions for the controller.

States are written in batches, one ``multi`` per batch. All batches are sent at once, without waiting for the answers in
between, because ZooKeeper performs the calls of a session in the order in which they were sent. A partition whose znode
is not as expected must not stop the other partitions. So when ZooKeeper rejects a batch, the states of that batch are
written again one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from logging import getLogger

from headrace.controller.decisions.context import ControllerContext
from headrace.controller.decisions.effects import StateWrite
from headrace.controller.decisions.leader_elections import Leadership
from headrace.controller.decisions.unnoticed_restarts import WrittenState
from headrace.controller.fenced_writer import FencedWriter, pipelined
from headrace.coordination.interface import (
    BadVersionError,
    Coordination,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)
from headrace.coordination.paths import partition_path, partition_state_path, partitions_path
from headrace.coordination.znodes import MalformedZnodeError, PartitionState, TopicPartition

logger = getLogger(__name__)

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


class PartitionStateWriter:
    """Writes ``state`` znodes in one controller epoch."""

    def __init__(self, writer: FencedWriter, context: ControllerContext) -> None:
        self._writer = writer
        self._context = context

    async def write(self, writes: Sequence[StateWrite]) -> dict[TopicPartition, int | None]:
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
