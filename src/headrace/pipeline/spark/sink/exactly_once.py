"""Writes exactly once: one transaction per task, prepared by the task and committed by the driver.

A task opens a transaction with the id ``<prefix>-<task>`` and writes its rows. Within the transaction it also commits
the *marker*: the number of the micro-batch as an offset of the group ``<prefix>-<task>``, with the id of the query as
metadata. The task leaves the transaction open and gives the driver what is needed to end it
(``transactions/prepared.py``). When all tasks are done, the driver stores which transactions it is about to commit, in
the group ``<prefix>``: the *decision* (``commit_ledger.py``). Then it ends the transactions, one by one::

    task      is there a decision? yes -> commit its transaction, done
              InitProducerId; is there a marker? yes -> done
              write, TxnOffsetCommit(marker), flush -> TaskResult
    driver    all results -> OffsetCommit(decision: batch, [task, producer id, epoch]...) -> EndTxn for each

What a crash leaves, and what happens when Spark replays the micro-batch:

* Before the decision: nothing is committed. The tasks start again, which aborts their open transactions, and write.
* After the decision: some transactions are committed, the others are open. Each task of the replay commits its
  transaction of the decision and writes nothing. A task that is not in the decision also writes nothing, because all
  rows are in the others. The driver commits transactions of the decision that have no task in the replay. So the result
  is exact even if the replay distributes its rows over other tasks.
* After the last EndTxn: the same; each EndTxn or marker shows that it is done.

If a transaction of the decision stays open for longer than ``kafka.transaction.timeout.ms`` (15 minutes by default),
its coordinator aborts it. Its task then writes its rows again, while those of other tasks are already committed. That
is exact if the replay puts the same rows into the same task. Spark does so for a source that is read again by the same
offsets, with the same number of tasks, and without a shuffle whose order changes.

A write that is not a stream has no batch number and no replay. It is committed as a whole or aborted, but a driver that
dies between two EndTxn leaves a part of it.

Two queries need two prefixes. A query that starts over with another checkpoint has another id, so old markers do not
count. Speculative execution must be off: the second attempt of a task fences the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from logging import getLogger

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.client.errors import HeadraceError
from headrace.client.producer.sync_producer import Producer
from headrace.client.transactions.prepared import PreparedTransaction, TransactionLost, prepare
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.pipeline.spark.sink.commit_ledger import CommitLedger, MicroBatch
from headrace.pipeline.spark.sink.options import SinkOptions

logger = getLogger(__name__)
#: Sends all rows and returns their number. Before the first row it calls the third argument with the topic of that row.
Send = Callable[[Producer, Iterator[pa.RecordBatch], Callable[[str], object]], int]


@dataclass(frozen=True)
class TaskResult:
    """The result of a task, for the driver."""

    task: int
    #: None if the write is not a stream.
    batch: MicroBatch | None
    #: None if there was nothing to write, or if it was written before.
    prepared: PreparedTransaction | None = None
    topic: str | None = None
    was_written_before: bool = False


# -- tasks


def write_task(
    options: SinkOptions, task: int, batch: MicroBatch | None, rows: Iterator[pa.RecordBatch], send: Send
) -> tuple[int, TaskResult]:
    """
    :return: the number of rows that were written, and the result for the driver.
    """
    first = next((one for one in rows if one.num_rows), None)
    if first is None:
        return 0, TaskResult(task, batch)
    with CommitLedger(options) as ledger:
        if batch is not None and _is_decided(ledger, task, batch):
            return 0, TaskResult(task, batch, was_written_before=True)
        transactional_id = ledger.transactional_id(task)
        with Producer(config=options.client, transactional_id=transactional_id) as producer:
            producer.init_transactions()
            if batch is not None and ledger.is_marked(task, batch):
                return 0, TaskResult(task, batch, was_written_before=True)
            row_count, topic = _write(producer, chain([first], rows), send)
            if batch is not None:
                marker = OffsetAndMetadata(batch.batch_id, batch.query_id)
                producer.send_offsets_to_transaction({TopicPartition(topic, 0): marker}, transactional_id)
            return row_count, TaskResult(task, batch, prepare(producer), topic)


def _write(producer: Producer, rows: Iterator[pa.RecordBatch], send: Send) -> tuple[int, str]:
    topics: list[str] = []

    def begin(topic: str) -> None:
        producer.begin_transaction()
        topics.append(topic)

    try:
        row_count = send(producer, rows, begin)
    except BaseException:
        if topics:
            # Otherwise readers of committed records would wait until its timeout.
            with suppress(HeadraceError):
                producer.abort_transaction()
        raise
    return row_count, topics[0]


def _is_decided(ledger: CommitLedger, task: int, batch: MicroBatch) -> bool:
    """Whether the rows of the task are in the decision. Commits their transaction then."""
    decision = ledger.decision(batch)
    if not decision:
        return False
    prepared = decision.get(task)
    try:
        if prepared is not None:
            ledger.end([prepared], is_commit=True)
    except TransactionLost as error:
        logger.warning("%s; checking whether it was committed, otherwise writing it again", error)
        return False
    return True


# -- the driver


def commit(options: SinkOptions, shares: list[TaskResult]) -> None:
    """
    :raises TransactionLost: if a transaction can no longer be committed. The replay of the micro-batch repairs that.
    """
    prepared = {one.task: one.prepared for one in shares if one.prepared is not None}
    done_before = {one.task for one in shares if one.was_written_before}
    if not prepared and not done_before:
        return
    batch = shares[0].batch
    with CommitLedger(options) as ledger:
        decided = ledger.decision(batch) if batch is not None and done_before else {}
        handled = done_before | prepared.keys()
        ledger.end((one for task, one in decided.items() if task not in handled), is_commit=True)
        if batch is not None and prepared:
            topic = next(one.topic for one in shares if one.topic is not None)
            # Includes the earlier decision: its parts are overwritten one by one, and no task may be missing meanwhile.
            ledger.decide(batch, topic, {**decided, **prepared})
        ledger.end(prepared.values(), is_commit=True)


def abort(options: SinkOptions, shares: list[TaskResult]) -> None:
    """Aborts the transactions that the tasks have left open, except those of a decision: the replay commits them."""
    prepared = [one.prepared for one in shares if one.prepared is not None]
    if not prepared:
        return
    batch = shares[0].batch
    with CommitLedger(options) as ledger:
        decided = [] if batch is None else list(ledger.decision(batch).values())
        try:
            ledger.end([one for one in prepared if one not in decided], is_commit=False)
        except HeadraceError as error:  # the next attempt or the timeout ends it
            logger.warning("cannot abort a transaction, which stays open until its timeout: %s", error)
