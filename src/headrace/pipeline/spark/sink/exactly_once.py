"""Writing exactly once: a transaction a task, prepared by the task and committed by the driver.

A task opens a transaction with the id ``<prefix>-<task>``, writes its rows, and commits with it the number of the
micro-batch to the group ``<prefix>-<task>``, as an offset, with the query's id beside it: the *marker*. It leaves the
transaction open and hands the driver what is needed to end it (``prepared_transactions.py``). When all tasks are
done the driver writes down what it is about to commit, in the group ``<prefix>``: the *decision*
(``commit_ledger.py``). Then it ends the transactions, one by one::

    task      decision there? -> commit what it says, done : InitProducerId, marker there? -> done
              : write, TxnOffsetCommit(marker), flush -> Share
    driver    all shares -> OffsetCommit(decision: batch, [task, producer id, epoch]...) -> EndTxn each

What a crash leaves, and what the replay of the micro-batch makes of it:

* before the decision: nothing is committed. The tasks begin anew, which aborts what they left open, and write.
* after the decision: some transactions are committed, the others are open. Each task of the replay commits what the
  decision says of it and writes nothing; a task that it says nothing of writes nothing either, as all rows are in the
  others; and the driver commits what no task of the replay had a hand in. So the whole is exact even where the replay
  has its rows in other tasks.
* after the last EndTxn: the same, and each EndTxn or the marker says that it is done.

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
#: Sends all rows; before the first it calls what it is given, with that row's topic. How many they were.
Send = Callable[[Producer, Iterator[pa.RecordBatch], Callable[[str], object]], int]


@dataclass(frozen=True)
class Share:
    """What a task has done, for the driver."""

    task: int
    #: None of what is no stream.
    batch: MicroBatch | None
    #: None: there was nothing to write, or it was written before.
    prepared: PreparedTransaction | None = None
    topic: str | None = None
    is_done_before: bool = False


# -- tasks


def write_share(
    options: SinkOptions, task: int, batch: MicroBatch | None, rows: Iterator[pa.RecordBatch], send: Send
) -> tuple[int, Share]:
    """
    :return: how many rows were written, and what the driver has to know.
    """
    first = next((one for one in rows if one.num_rows), None)
    if first is None:
        return 0, Share(task, batch)
    with CommitLedger(options) as ledger:
        if batch is not None and _is_decided(ledger, task, batch):
            return 0, Share(task, batch, is_done_before=True)
        transactional_id = ledger.transactional_id(task)
        with Producer(config=options.client, transactional_id=transactional_id) as producer:
            producer.init_transactions()
            if batch is not None and ledger.is_marked(task, batch):
                return 0, Share(task, batch, is_done_before=True)
            row_count, topic = _write(producer, chain([first], rows), send)
            if batch is not None:
                marker = OffsetAndMetadata(batch.batch_id, batch.query_id)
                producer.send_offsets_to_transaction({TopicPartition(topic, 0): marker}, transactional_id)
            return row_count, Share(task, batch, prepare(producer), topic)


def _write(producer: Producer, rows: Iterator[pa.RecordBatch], send: Send) -> tuple[int, str]:
    topics: list[str] = []

    def begin(topic: str) -> None:
        producer.begin_transaction()
        topics.append(topic)

    try:
        row_count = send(producer, rows, begin)
    except BaseException:
        if topics:
            # Readers of committed records would wait for it until its time is up.
            with suppress(HeadraceError):
                producer.abort_transaction()
        raise
    return row_count, topics[0]


def _is_decided(ledger: CommitLedger, task: int, batch: MicroBatch) -> bool:
    """Whether the task's rows were decided to be committed, and are now."""
    decision = ledger.decision(batch)
    if not decision:
        return False
    prepared = decision.get(task)
    try:
        if prepared is not None:
            ledger.end([prepared], is_commit=True)
    except TransactionLost as error:
        logger.warning("%s; looking whether it was committed, else writing it again", error)
        return False
    return True


# -- the driver


def commit(options: SinkOptions, shares: list[Share]) -> None:
    """
    :raises TransactionLost: if one cannot be committed any more; the replay of the micro-batch mends that.
    """
    prepared = {one.task: one.prepared for one in shares if one.prepared is not None}
    done_before = {one.task for one in shares if one.is_done_before}
    if not prepared and not done_before:
        return
    batch = shares[0].batch
    with CommitLedger(options) as ledger:
        decided = ledger.decision(batch) if batch is not None and done_before else {}
        handled = done_before | prepared.keys()
        ledger.end((one for task, one in decided.items() if task not in handled), is_commit=True)
        if batch is not None and prepared:
            topic = next(one.topic for one in shares if one.topic is not None)
            # With what was decided before: its parts may be replaced one by one, and no task is ever missing.
            ledger.decide(batch, topic, {**decided, **prepared})
        ledger.end(prepared.values(), is_commit=True)


def abort(options: SinkOptions, shares: list[Share]) -> None:
    """Ends what the tasks have left open. Not what was decided to be committed: the replay will."""
    prepared = [one.prepared for one in shares if one.prepared is not None]
    if not prepared:
        return
    batch = shares[0].batch
    with CommitLedger(options) as ledger:
        decided = [] if batch is None else list(ledger.decision(batch).values())
        try:
            ledger.end([one for one in prepared if one not in decided], is_commit=False)
        except HeadraceError as error:  # it ends by itself, by the next attempt or by its time
            logger.warning("a transaction was not aborted: %s", error)
