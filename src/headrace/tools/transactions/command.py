"""``headrace transactions``: lists transactions and the producers of a partition, and aborts hanging transactions.

The action comes first, then its options, as in Kafka's tool. Options that all commands share may come before or after
it.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.client.errors import HeadraceError
from headrace.client.types import TopicPartition
from headrace.tools.shared.commands import (
    CommandError,
    Output,
    Table,
    UsageError,
    connect,
    int16,
    int32,
    int64,
    new_parser,
    run,
)
from headrace.tools.transactions.hanging import OpenTransaction, hanging, old_transactions

if TYPE_CHECKING:
    from headrace import Admin

_MS_PER_MINUTE = 60_000
_DEFAULT_MAX_TIMEOUT_MINUTES = 15
#: The options of each action, and whether each is required.
_TAKES: dict[str, dict[str, bool]] = {
    "list": {"duration_filter": False, "transactional_id_pattern": False},
    "describe": {"transactional_id": True},
    "describe-producers": {"topic": True, "partition": True, "broker_id": False},
    "abort": {
        "topic": True, "partition": True, "start_offset": False, "producer_id": False, "producer_epoch": False,
        "coordinator_epoch": False,
    },
    "find-hanging": {"topic": False, "partition": False, "broker_id": False, "max_transaction_timeout": False},
    "forceTerminateTransaction": {"transactional_id": True},
}  # fmt: skip
_EXAMPLES = """
headrace transactions list
headrace transactions describe --transactional-id payments-1
headrace transactions describe-producers --topic orders --partition 0
headrace transactions find-hanging --broker-id 0
headrace transactions abort --topic orders --partition 0 --start-offset 1234
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser("transactions", "List and describe transactions, and abort hanging ones.", _EXAMPLES)
    parser.add_argument(
        "action",
        choices=list(_TAKES),
        metavar="ACTION",
        help="list: transactional ids; describe: one of them; describe-producers: who writes into a partition; "
        "find-hanging: transactions that nobody will end; abort: one of those; forceTerminateTransaction: an open one",
    )
    parser.add_argument("--transactional-id", "--transactionalId", metavar="ID", help="which transactional id")
    parser.add_argument("--transactional-id-pattern", metavar="REGEX", help="list: only ids that match")
    parser.add_argument(
        "--duration-filter", metavar="MS", type=int64, help="list: only transactions that are open for longer than this"
    )
    parser.add_argument("--topic", metavar="NAME", help="the topic of a partition; find-hanging: only there")
    parser.add_argument("--partition", metavar="N", type=int32, help="the partition; find-hanging: only there")
    parser.add_argument(
        "--broker-id",
        metavar="ID",
        type=int32,
        help="the broker whose replica is asked; find-hanging: only replicas of this broker",
    )
    parser.add_argument(
        "--max-transaction-timeout",
        metavar="MINUTES",
        type=int32,
        help=f"find-hanging: the longest allowed duration of a transaction (default {_DEFAULT_MAX_TIMEOUT_MINUTES})",
    )
    parser.add_argument("--start-offset", metavar="N", type=int64, help="abort: the first offset of the transaction")
    parser.add_argument(
        "--producer-id",
        metavar="N",
        type=int64,
        help="abort, instead of the offset: the producer id, together with both epochs",
    )
    parser.add_argument("--producer-epoch", metavar="N", type=int16, help="abort: the producer's epoch")
    parser.add_argument("--coordinator-epoch", metavar="N", type=int32, help="abort: the coordinator's epoch")
    return parser


def _work(options: Namespace, out: Output) -> None:
    check(options)
    with connect(options) as admin:
        _DO[options.action](admin, options, out)


def check(options: Namespace) -> None:
    """Rejects options that the action does not have, and missing required options."""
    takes = _TAKES[options.action]
    for name in dict.fromkeys(name for names in _TAKES.values() for name in names):
        flag = f"--{name.replace('_', '-')}"
        is_given = getattr(options, name) is not None
        if is_given and name not in takes:
            raise UsageError(f"{options.action} does not take {flag}")
        if not is_given and takes.get(name):
            raise UsageError(f"{options.action} needs {flag}")
    if options.action == "find-hanging":
        if options.topic is None and options.broker_id is None:
            raise UsageError(
                "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
            )
        if options.partition is not None and options.topic is None:
            raise UsageError("The --partition argument requires --topic to be provided")
    if options.action == "abort" and options.start_offset is None:
        if options.producer_id is None:
            raise UsageError(
                "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) "
                "or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
            )
        for name in ("producer_epoch", "coordinator_epoch"):
            if getattr(options, name) is None:
                raise UsageError(f"Missing required argument --{name.replace('_', '-')}")


# --------------------------------------------------------------------------------------------------------------- show


def _list(admin: Admin, options: Namespace, out: Output) -> None:
    duration_ms = -1 if options.duration_filter is None else options.duration_filter
    found = admin.list_transactions(longer_than_ms=duration_ms, pattern=options.transactional_id_pattern)
    _show(
        out,
        ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
        [(each.transactional_id, each.coordinator_id, each.producer_id, each.state) for each in found],
    )


def _describe(admin: Admin, options: Namespace, out: Output) -> None:
    name = options.transactional_id
    with _failing(f"Failed to describe transaction state of transactional-id `{name}`"):
        found = admin.describe_transaction(name)
    started_ms = found.start_time_ms
    duration_ms = None if started_ms is None else max(0, _now_ms() - started_ms)
    headings = (
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    )  # fmt: skip
    row = (
        found.coordinator_id, found.transactional_id, found.producer_id, found.producer_epoch, found.state,
        found.timeout_ms, started_ms, duration_ms, ",".join(map(str, sorted(found.partitions))),
    )  # fmt: skip
    _show(out, headings, [row])


def _describe_producers(admin: Admin, options: Namespace, out: Output) -> None:
    partition = TopicPartition(options.topic, options.partition)
    where = "leader" if options.broker_id is None else f"broker {options.broker_id}"
    with _failing(f"Failed to describe producers for partition {partition} on {where}"):
        found = admin.describe_producers([partition], broker_id=options.broker_id).value(partition)
    headings = (
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    )  # fmt: skip
    rows = [
        (
            each.producer_id, each.producer_epoch, each.coordinator_epoch, each.last_sequence, each.last_timestamp_ms,
            None if each.current_txn_start_offset < 0 else each.current_txn_start_offset,
        )
        for each in found
    ]  # fmt: skip
    _show(out, headings, rows)


def _find_hanging(admin: Admin, options: Namespace, out: Output) -> None:
    minutes = options.max_transaction_timeout
    max_timeout_ms = (_DEFAULT_MAX_TIMEOUT_MINUTES if minutes is None else minutes) * _MS_PER_MINUTE
    partitions = _searched(admin, options)
    found: list[OpenTransaction] = []
    if partitions:
        where = "" if options.broker_id is None else f" on broker {options.broker_id}"
        with _failing(f"Failed to describe producers for {len(partitions)} partitions{where}"):
            producers = admin.describe_producers(partitions, broker_id=options.broker_id).all()
        found = _hanging(admin, old_transactions(producers, _now_ms(), max_timeout_ms))
    headings = (
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
        "Duration(min)",
    )  # fmt: skip
    rows = [
        (
            *each.partition, each.producer.producer_id, each.producer.producer_epoch, each.producer.coordinator_epoch,
            each.producer.current_txn_start_offset, each.producer.last_timestamp_ms,
            (_now_ms() - each.producer.last_timestamp_ms) // _MS_PER_MINUTE,
        )
        for each in found
    ]  # fmt: skip
    _show(out, headings, rows)


def _searched(admin: Admin, options: Namespace) -> list[TopicPartition]:
    """The partitions to search: the named one, or the partitions of the topic or of all topics that the broker has."""
    names = [options.topic] if options.topic is not None else list(admin.list_topics(include_internal=True))
    topics = admin.describe_topics(names).all() if names else {}
    if options.partition is not None:
        there = [each.partition for each in topics[options.topic].partitions]
        if options.partition not in there:
            raise CommandError(f"{options.topic} has no partition {options.partition}; it has {len(there)}")
        return [TopicPartition(options.topic, options.partition)]
    return [
        TopicPartition(name, each.partition)
        for name, topic in topics.items()
        for each in topic.partitions
        if options.broker_id is None or options.broker_id in each.replicas
    ]


def _hanging(admin: Admin, candidates: list[OpenTransaction]) -> list[OpenTransaction]:
    if not candidates:
        return []
    listed = admin.list_transactions(producer_ids={each.producer.producer_id for each in candidates})
    ids = {each.producer_id: each.transactional_id for each in listed}
    # A transaction that has ended meanwhile has no description, and cannot be the owner of the partition.
    known = admin.describe_transactions(ids.values()).ok if ids else {}
    return hanging(candidates, ids, known)


# ---------------------------------------------------------------------------------------------------------------- end


def _abort(admin: Admin, options: Namespace, out: Output) -> None:
    partition = TopicPartition(options.topic, options.partition)
    if options.start_offset is not None:
        identity = _owner(admin, partition, options.start_offset)
    else:
        # describe-producers reports -1 for a coordinator that has written no marker yet; markers start with 0.
        identity = (options.producer_id, options.producer_epoch, max(0, options.coordinator_epoch))
    with _failing(f"Failed to abort transaction {identity} of {partition}"):
        admin.abort_transaction(partition, *identity)
    out.show({"topic": partition.topic, "partition": partition.partition, "producerId": identity[0]}, ())


def _owner(admin: Admin, partition: TopicPartition, start_offset: int) -> tuple[int, int, int]:
    """The producer id, producer epoch and coordinator epoch of the transaction that starts at an offset."""
    with _failing(f"Failed to validate producer state for partition {partition}"):
        producers = admin.describe_producers([partition]).value(partition)
    for producer in producers:
        if producer.current_txn_start_offset == start_offset:
            return producer.producer_id, producer.producer_epoch, max(0, producer.coordinator_epoch)
    raise CommandError(
        f"Could not find any open transactions starting at offset {start_offset} on partition {partition}"
    )


def _force_terminate(admin: Admin, options: Namespace, out: Output) -> None:
    name = options.transactional_id
    with _failing(f"Failed to force terminate transactionalId `{name}`"):
        admin.describe_transaction(name)  # Fencing would create an id that does not exist.
        fenced = admin.fence_producers([name]).value(name)
    out.show({"transactionalId": name, "producerId": fenced.producer_id, "producerEpoch": fenced.producer_epoch}, ())


# ------------------------------------------------------------------------------------------------------------- output


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Adds to a client's error what the command tried to do."""
    try:
        yield
    except HeadraceError as error:
        raise CommandError(f"{what}: {error}") from error


def _show(out: Output, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    names = [heading[0].lower() + heading[1:].replace("(min)", "Minutes") for heading in headings]
    out.show([dict(zip(names, row, strict=True)) for row in rows], lines(headings, rows), Table(headings, rows))


def lines(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The table of Kafka's tool: cells padded with blanks, each followed by a tab."""
    cells = [list(headings), *(["None" if value is None else str(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "".join(f"{cell.ljust(width)}\t" for cell, width in zip(row, widths, strict=True))


def _now_ms() -> int:
    return int(time.time() * 1000)


_DO = {
    "list": _list,
    "describe": _describe,
    "describe-producers": _describe_producers,
    "abort": _abort,
    "find-hanging": _find_hanging,
    "forceTerminateTransaction": _force_terminate,
}
