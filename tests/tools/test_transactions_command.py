"""headrace transactions: what is open, who writes, and the end of what hangs."""

import pytest

from headrace.client.admin.types import ProducerState, TransactionDescription
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.testing.raw_client import RawClient
from headrace.tools.transactions.command import lines
from headrace.tools.transactions.hanging import OpenTransaction, hanging, old_transactions


@pytest.fixture(scope="module")
def topic(admin):
    admin.create_topic("paid", num_partitions=2)
    return "paid"


@pytest.fixture
def begin(broker, admin, topic):
    """Opens a transaction in partition 0 and leaves it; gives the producer's id."""

    def begin(name, partition=0):
        admin.describe_transactions([name])  # waits until its coordinator is there
        with RawClient(broker.bootstrap_servers) as client:
            made = client.ask(Api.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout=60_000,
                              producer_id=-1, producer_epoch=-1)  # fmt: skip
            assert made.error_code.value == 0
            client.ask(
                Api.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id=name,
                v3_and_below_producer_id=made.producer_id, v3_and_below_producer_epoch=made.producer_epoch,
                v3_and_below_topics=[{"name": topic, "partitions": [partition]}],
            )  # fmt: skip
            batch = build_batch(
                [Record(0, 1000, None, b"v")], base_offset=0, producer_id=made.producer_id,
                producer_epoch=made.producer_epoch, base_sequence=0, is_transactional=True,
            )  # fmt: skip
            answer = client.ask(
                Api.PRODUCE, 9, transactional_id=name, acks=-1, timeout=5_000,
                topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": bytes(batch)}]}],
            )  # fmt: skip
            (done,) = answer.responses[0].partition_responses
            assert done.error_code.value == 0
            return int(made.producer_id), int(done.base_offset)

    return begin


def test_an_open_transaction_is_listed_described_and_aborted(tool, begin):
    producer_id, start_offset = begin("open")
    assert ["open", "0", str(producer_id), "Ongoing"] in [
        line.split() for line in tool("transactions", "list").lines[1:]
    ]
    (told,) = tool("transactions", "describe", "--transactional-id", "open", "--json").value
    assert told["transactionalId"] == "open"
    assert (told["transactionState"], told["topicPartitions"]) == ("Ongoing", "paid-0")
    assert told["transactionTimeoutMs"] == 60_000
    assert told["transactionDurationMs"] >= 0

    where = ("--topic", "paid", "--partition", 0)
    headings, *rows = tool("transactions", "describe-producers", *where).lines
    assert headings.endswith("LastTimestamp\tCurrentTransactionStartOffset\t")
    assert [row.split()[-1] for row in rows if row.split()[0] == str(producer_id)] == [str(start_offset)]

    assert tool("transactions", "abort", *where, "--start-offset", start_offset) == (0, "", "")
    producers = tool("transactions", "describe-producers", *where, "--json").value
    (after,) = [each for each in producers if each["producerId"] == producer_id]
    assert after["currentTransactionStartOffset"] is None
    again = tool("transactions", "abort", *where, "--start-offset", start_offset)
    assert again.code == 1
    assert "Could not find any open transactions starting at offset" in again.err


def test_a_coordinator_that_is_not_known_is_the_first(tool, begin):
    producer_id, _ = begin("unmarked")
    where = ("--topic", "paid", "--partition", 0)
    whose = ("--producer-id", producer_id, "--producer-epoch", 0, "--coordinator-epoch", -1)
    assert tool("transactions", "abort", *where, *whose) == (0, "", "")
    producers = tool("transactions", "describe-producers", *where, "--json").value
    (after,) = [each for each in producers if each["producerId"] == producer_id]
    assert (after["currentTransactionStartOffset"], after["latestCoordinatorEpoch"]) == (None, 0)


def test_a_producer_is_shut_out_by_its_transactional_id(tool, begin):
    begin("shut-out", 1)
    assert tool("transactions", "forceTerminateTransaction", "--transactionalId", "shut-out") == (0, "", "")
    (told,) = tool("transactions", "describe", "--transactional-id", "shut-out", "--json").value
    assert told["transactionState"] != "Ongoing"
    missing = tool("transactions", "forceTerminateTransaction", "--transactionalId", "nobody")
    assert (missing.code, "transactional_id_not_found" in missing.err) == (1, True)


def test_what_its_coordinator_knows_does_not_hang(tool, begin, broker, admin):
    begin("slow")
    headings = (
        "Topic\tPartition\tProducerId\tProducerEpoch\tCoordinatorEpoch\tStartOffset\tLastTimestamp\tDuration(min)\t"
    )
    assert tool("transactions", "find-hanging", "--broker-id", 0) == (0, f"{headings}\n", "")
    searched = tool("transactions", "find-hanging", "--topic", "paid", "--max-transaction-timeout", 0)
    assert searched == (0, f"{headings}\n", "")
    admin.fence_producers(["slow"])


def test_nothing_hangs_where_there_is_no_partition(tool, topic):
    where = ("--topic", topic, "--partition")
    failed = tool("transactions", "find-hanging", *where, 99)
    assert failed == (1, "", "headrace transactions: paid has no partition 99; it has 2\n")
    elsewhere = tool("transactions", "find-hanging", *where, 0, "--broker-id", 7)
    assert (elsewhere.code, elsewhere.out, elsewhere.err.count("\n")) == (1, "", 1)
    assert "Failed to describe producers for 1 partitions on broker 7: " in elsewhere.err


def test_an_id_that_is_not_there(tool):
    failed = tool("transactions", "describe", "--transactional-id", "nobody")
    assert failed.code == 1
    assert failed.err.startswith(
        "headrace transactions: Failed to describe transaction state of transactional-id `nobody`: "
    )


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["describe"],
        ["list", "--topic", "a"],
        ["describe-producers", "--topic", "a"],
        ["find-hanging"],
        ["find-hanging", "--broker-id", 0, "--partition", 0],
        ["abort", "--topic", "a", "--partition", 0],
        ["abort", "--topic", "a", "--partition", 0, "--producer-id", 1],
        ["abort", "--topic", "a", "--partition", 0, "--producer-id", 1, "--producer-epoch", 1],
    ],
)
def test_wrong_use(tool, arguments):
    failed = tool("transactions", *arguments)
    assert (failed.code, failed.out) == (2, "")


# -- without a broker

AT = TopicPartition("t", 0)


def producer(producer_id, *, last_ms=0, start_offset=5):
    return ProducerState(producer_id, 0, 0, last_ms, 0, start_offset)


def test_only_old_open_transactions_may_hang():
    states = {AT: [producer(1), producer(2, last_ms=100), producer(3, start_offset=-1)]}
    assert old_transactions(states, now_ms=160, max_timeout_ms=100) == [OpenTransaction(AT, producer(1))]


def test_hanging_is_what_no_coordinator_knows():
    candidates = [OpenTransaction(AT, producer(producer_id)) for producer_id in (1, 2, 3)]

    def known(name, *partitions):
        return TransactionDescription(name, 0, "Ongoing", 0, 0, 0, 0, partitions)

    ids = {1: "mine", 2: "elsewhere"}
    described = {"mine": known("mine", AT), "elsewhere": known("elsewhere", TopicPartition("t", 1))}
    assert [each.producer.producer_id for each in hanging(candidates, ids, described)] == [2, 3]


def test_cells_are_filled_up_and_end_in_tabs():
    assert list(lines(["Id", "State"], [["long-id", None]])) == ["Id     \tState\t", "long-id\tNone \t"]
