"""Stores the markers and decisions of a sink that writes exactly once (``exactly_once.py``) in the broker.

Both are committed offsets of consumer groups: these survive every process and can be part of a transaction::

    group               offset      metadata
    <prefix>-<task>     batch id    query id                                            the marker, in the transaction
    <prefix>            batch id    [query id, parts, [[task, producer id, epoch, v2], ...]]        the decision
    <prefix>-decision-1 batch id    the same, for more tasks                            written before the first part

They are committed for partition 0 of the first topic that was written. A broker accepts 4096 bytes of metadata, so a
decision about many tasks has several parts. The first part is written last; without it there is no decision. A crash in
between leaves parts that the next decision overwrites.

The offsets of a group without members expire after ``offsets.retention.minutes``, a week by default. A query that
crashed within a commit, and was down for longer than that, cannot find out what it had committed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from headrace.client import background
from headrace.client.admin.sync_admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.config import AdminConfig
from headrace.client.transactions.prepared import PreparedTransaction, end_prepared
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.pipeline.spark.options import shared_client_options
from headrace.pipeline.spark.sink.options import SinkOptions

#: The tasks of a decision that fit into the metadata of an offset.
_TASKS_PER_PART = 80


class MicroBatch(NamedTuple):
    query_id: str
    batch_id: int


class CommitLedger:
    """The markers and decisions of one prefix. Use it as a context manager."""

    def __init__(self, options: SinkOptions) -> None:
        assert options.transactional_id_prefix is not None
        self._prefix = options.transactional_id_prefix
        self._client = shared_client_options(options.client)

    def __enter__(self) -> Self:
        self._admin = Admin(config=self._client)
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def transactional_id(self, task: int) -> str:
        """The transactional id of a task; also the name of the group with the marker of the task."""
        return f"{self._prefix}-{task}"

    def is_marked(self, task: int, batch: MicroBatch) -> bool:
        """Whether the transaction of the task for that micro-batch, or for a later one, is committed."""
        found = self._admin.list_group_offsets(self.transactional_id(task), require_stable=True)
        return any(one.metadata == batch.query_id and one.offset >= batch.batch_id for one in found.values())

    def decide(self, batch: MicroBatch, topic: str, prepared: Mapping[int, PreparedTransaction]) -> None:
        """Stores which transactions will be committed."""
        tasks = [
            (task, one.producer_id, one.producer_epoch, int(one.is_version_2)) for task, one in sorted(prepared.items())
        ]
        parts = [tasks[at : at + _TASKS_PER_PART] for at in range(0, len(tasks), _TASKS_PER_PART)]
        for number in reversed(range(len(parts))):
            text = json.dumps([batch.query_id, len(parts), parts[number]], separators=(",", ":"))
            offsets = {TopicPartition(topic, 0): OffsetAndMetadata(batch.batch_id, text)}
            self._admin.alter_group_offsets(self._part_group(number), offsets).all()

    def decision(self, batch: MicroBatch) -> dict[int, PreparedTransaction]:
        """The transactions of the micro-batch that will be committed, by task; empty if there is no decision."""
        part_count, tasks = self._part(batch, 0)
        for number in range(1, part_count):
            tasks = tasks + self._part(batch, number)[1]
        return {
            task: PreparedTransaction(self.transactional_id(task), producer_id, epoch, bool(version))
            for task, producer_id, epoch, version in tasks
        }

    def _part(self, batch: MicroBatch, number: int) -> tuple[int, list[list[int]]]:
        """The number of parts, and the tasks of this part."""
        for one in self._admin.list_group_offsets(self._part_group(number)).values():
            if one.offset == batch.batch_id and one.metadata.startswith("["):
                query_id, part_count, tasks = json.loads(one.metadata)
                if query_id == batch.query_id:
                    return part_count, tasks
        assert number == 0, "the first part of a decision exists, but not the others"
        return 0, []

    def _part_group(self, number: int) -> str:
        return self._prefix if number == 0 else f"{self._prefix}-decision-{number}"

    def end(self, prepared: Iterable[PreparedTransaction], *, is_commit: bool) -> None:
        """Ends all transactions that can be ended, then raises the error of one that could not."""
        wanted = list(prepared)

        async def work() -> list[BaseException | None]:
            async with Cluster(AdminConfig.load(self._client)) as cluster:
                ending = (end_prepared(cluster, one, is_commit=is_commit) for one in wanted)
                return await asyncio.gather(*ending, return_exceptions=True)

        for error in background.run(work()) if wanted else []:
            if error is not None:
                raise error
