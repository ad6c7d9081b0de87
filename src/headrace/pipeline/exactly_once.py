"""Writing exactly once: a transaction a task, prepared by the task and committed by the driver.

A task opens a transaction with the id ``<prefix>-<task>``, writes its rows, and commits with it the number of the
micro-batch to the group ``<prefix>-<task>``, as an offset, with the query's id beside it: the *marker*. It leaves the
transaction open and hands the driver what is needed to end it (``client/prepared_transactions.py``). When all tasks are
done the driver writes down what it is about to commit, in the group ``<prefix>``: the *decision*. Then it ends the
transactions, one by one::

    task      InitProducerId, marker there? -> done before : write, TxnOffsetCommit(marker), flush -> Share
    driver    all shares -> OffsetCommit(decision: batch, [task, producer id, epoch]...) -> EndTxn each

What a crash leaves, and what the replay of the micro-batch makes of it:

* before the decision: nothing is committed. The tasks begin anew, which aborts what they left open, and write.
* after the decision: some transactions are committed, the others are open. Each task of the replay commits what the
  decision says of it and writes nothing, and the driver commits what no task of the replay asked for: the whole is
  exact even where the replay has its rows in other tasks.
* after the last EndTxn: the markers say so, and nothing is written.

With one transaction only, it needs no decision: it is committed or not, and its marker with it.

A transaction that was decided on but open for longer than ``kafka.transaction.timeout.ms`` (15 minutes unless said
otherwise) is aborted by its coordinator. Its task then writes its rows once more, beside those of others that were
committed. That is exact if the replay puts the same rows into the same task, as Spark does for a source that is read
again by the same offsets, with the same number of tasks, without a shuffle in an order that changes.

A write that is no stream has no number and no replay: it is committed as a whole, or aborted, but a driver that dies
between two EndTxn leaves a part.

Two queries need two prefixes. A query that begins anew, with another checkpoint, has another id, so old markers do not
count. Speculative execution must be off: the second attempt of a task fences the first.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from logging import getLogger
from typing import Any, TypeVar

from headrace.client import background
from headrace.client.admin import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.client.config import AdminConfig
from headrace.client.errors import HeadraceError
from headrace.client.prepared_transactions import PreparedTransaction, TransactionLost, end_prepared, prepare
from headrace.client.sync_producer import Producer
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.pipeline.sink_options import SinkOptions
from headrace.pipeline.source_options import shared_client_options

logger = getLogger(__name__)
_T = TypeVar("_T")
#: Of a decision so many fit the 4096 bytes that a broker takes beside an offset.
_TASKS_A_PART = 80


@dataclass(frozen=True)
class TaskPlace:
    """Which part of which micro-batch; what is no stream has only tasks."""

    task: int
    query_id: str | None = None
    batch_id: int = 0


@dataclass(frozen=True)
class Share:
    """What a task has done, for the driver."""

    place: TaskPlace
    #: None: there was nothing to write, or it was written before.
    prepared: PreparedTransaction | None = None
    topic: str | None = None
    is_done_before: bool = False


# -- tasks


def write_share(
    options: SinkOptions, place: TaskPlace, write: Callable[[Producer, Callable[[str], object]], int]
) -> tuple[int, Share]:
    """
    :param write: sends all rows; before the first it calls what it is given, with that row's topic.
    :return: how many rows were written, and what the driver has to know.
    """
    prefix = options.transactional_id_prefix
    assert prefix is not None
    ledger = Ledger(options)
    if place.query_id is not None and ledger.finishes(place):
        return 0, Share(place, is_done_before=True)
    topics: list[str] = []
    with Producer(config=options.client, transactional_id=f"{prefix}-{place.task}") as producer:
        producer.init_transactions()
        if place.query_id is not None and ledger.is_marked(place):
            return 0, Share(place, is_done_before=True)

        def begin(topic: str) -> None:
            producer.begin_transaction()
            topics.append(topic)

        row_count = write(producer, begin)
        if not topics:
            return 0, Share(place)
        if place.query_id is not None:
            marker = OffsetAndMetadata(place.batch_id, place.query_id)
            producer.send_offsets_to_transaction({TopicPartition(topics[0], 0): marker}, f"{prefix}-{place.task}")
        return row_count, Share(place, prepare(producer), topics[0])


# -- the driver


def commit(options: SinkOptions, shares: list[Share]) -> None:
    """
    :raises TransactionLost: if one cannot be committed any more; the replay of the micro-batch mends that.
    """
    if not shares:
        return
    ledger, place = Ledger(options), shares[0].place
    prepared = {one.place.task: one.prepared for one in shares if one.prepared is not None}
    if place.query_id is not None:
        if any(one.is_done_before for one in shares):
            seen = {one.place.task for one in shares}
            decided = ledger.decision(place)
            ledger.end((one for task, one in decided.items() if task not in seen), is_commit=True)
        if len(prepared) > 1:
            topic = next(one.topic for one in shares if one.topic is not None)
            ledger.decide(place, topic, prepared)
    ledger.end(prepared.values(), is_commit=True)


def abort(options: SinkOptions, shares: list[Share]) -> None:
    """Ends what the tasks have left open. Not if it was decided to commit it: the replay will."""
    prepared = [one.prepared for one in shares if one.prepared is not None]
    if not prepared:
        return
    ledger, place = Ledger(options), shares[0].place
    if place.query_id is not None and ledger.decision(place):
        return
    try:
        ledger.end(prepared, is_commit=False)
    except HeadraceError as error:  # it ends by itself, by the next attempt or by its time
        logger.warning("a transaction was not aborted: %s", error)


# -- what the broker remembers


class Ledger:
    """Markers and decisions of one prefix, and the ends of transactions."""

    def __init__(self, options: SinkOptions) -> None:
        assert options.transactional_id_prefix is not None
        self._prefix = options.transactional_id_prefix
        self._client = shared_client_options(options.client)

    def is_marked(self, place: TaskPlace) -> bool:
        """Whether the task's transaction of that micro-batch, or of a later one, is committed."""
        group = f"{self._prefix}-{place.task}"
        found = self._admin(lambda admin: admin.list_group_offsets(group, require_stable=True))
        return any(one.metadata == place.query_id and one.offset >= place.batch_id for one in found.values())

    def finishes(self, place: TaskPlace) -> bool:
        """Commits what was decided on for that task, if it was and can be."""
        prepared = self.decision(place).get(place.task)
        if prepared is None:
            return False
        try:
            self.end([prepared], is_commit=True)
        except TransactionLost as error:
            logger.warning("%s; looking whether it is committed, else writing it again", error)
            return False
        return True

    def decide(self, place: TaskPlace, topic: str, prepared: Mapping[int, PreparedTransaction]) -> None:
        """Writes down what will be committed. The first part goes last: with it, it is decided."""
        tasks = [(task, one.producer_id, one.producer_epoch, int(one.is_version_2)) for task, one in prepared.items()]
        parts = [tasks[at : at + _TASKS_A_PART] for at in range(0, len(tasks), _TASKS_A_PART)]
        for number in reversed(range(len(parts))):
            text = json.dumps([place.query_id, len(parts), parts[number]], separators=(",", ":"))
            offsets = {TopicPartition(topic, 0): OffsetAndMetadata(place.batch_id, text)}
            self._admin(_altering(self._part_group(number), offsets))

    def decision(self, place: TaskPlace) -> dict[int, PreparedTransaction]:
        """What was decided to be committed of that micro-batch, by task."""
        head = self._part(place, 0)
        if head is None:
            return {}
        _, part_count, tasks = head
        for number in range(1, part_count):
            part = self._part(place, number)
            assert part is not None, "a decision whose first part is there, but not the others"
            tasks = tasks + part[2]
        return {
            task: PreparedTransaction(f"{self._prefix}-{task}", producer_id, epoch, bool(version))
            for task, producer_id, epoch, version in tasks
        }

    def _part(self, place: TaskPlace, number: int) -> tuple[str, int, list[list[int]]] | None:
        found = self._admin(lambda admin: admin.list_group_offsets(self._part_group(number)))
        for one in found.values():
            if one.offset == place.batch_id and one.metadata.startswith("["):
                query_id, part_count, tasks = json.loads(one.metadata)
                if query_id == place.query_id:
                    return query_id, part_count, tasks
        return None

    def _part_group(self, number: int) -> str:
        return self._prefix if number == 0 else f"{self._prefix}-decision-{number}"

    def end(self, prepared: Iterable[PreparedTransaction], *, is_commit: bool) -> None:
        """Ends all that can be, then raises what was in the way of the others."""
        wanted = list(prepared)

        async def work() -> list[BaseException | None]:
            async with Cluster(AdminConfig.load(self._client)) as cluster:
                ending = (end_prepared(cluster, one, is_commit=is_commit) for one in wanted)
                return await asyncio.gather(*ending, return_exceptions=True)

        for error in background.run(work()) if wanted else []:
            if error is not None:
                raise error

    def _admin(self, ask: Callable[[AsyncAdmin], Awaitable[_T]]) -> _T:
        async def work() -> _T:
            async with AsyncAdmin(config=self._client) as admin:
                return await ask(admin)

        return background.run(work())


def _altering(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> Callable[[AsyncAdmin], Coroutine[Any, Any, None]]:
    async def alter(admin: AsyncAdmin) -> None:
        (await admin.alter_group_offsets(group, offsets)).all()

    return alter
