"""Writes and deletes the znodes of topics for the controller, and the requests for reassignments."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from logging import getLogger

from headrace.controller.decisions.context import ControllerContext
from headrace.controller.fenced_writer import FencedWriter, pipelined
from headrace.coordination.interface import (
    BadVersionError,
    CoordinationError,
    Delete,
    NoNodeError,
    NotEmptyError,
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
from headrace.coordination.znodes import MalformedZnodeError, Reassignment, TopicAssignment, TopicPartition

logger = getLogger(__name__)

#: Operations per ``multi``: ZooKeeper accepts one megabyte, and a path has up to 300 bytes.
_MAX_OPERATIONS = 500
#: Attempts per write, because somebody may be changing the same znode by hand.
_ATTEMPTS = 10


class TopicWriter:
    """Writes the znodes of topics in one controller epoch."""

    def __init__(self, writer: FencedWriter, context: ControllerContext) -> None:
        self._writer = writer
        self._coordination = writer.coordination
        self._context = context

    async def write(self, topic: str, assignment: TopicAssignment) -> None:
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

    async def delete(self, topic: str) -> None:
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
