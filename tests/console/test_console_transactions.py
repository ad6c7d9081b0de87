"""The page Transactions and its actions: open for too long, terminated, and aborted where no coordinator knows them."""

from __future__ import annotations

import pytest

from headrace import Admin, Broker
from headrace.client.admin.types import ProducerState, TransactionDescription
from headrace.client.types import TopicPartition
from headrace.console.cluster.open_transactions import unknown_transactions
from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.testing.raw_client import RawClient

_AT = TopicPartition("paid", 0)


@pytest.fixture(scope="module")
def broker():
    """A broker that takes batches of transactions that its coordinator does not know, as before Kafka 3.6."""
    with Broker(config={"transaction.partition.verification.enable": False}) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("paid", num_partitions=2)
        yield admin


def begin(broker, admin, name: str, partition: int, *, is_known: bool) -> int:
    """Opens a transaction and leaves it; gives the offset of its record."""
    admin.describe_transactions([name])  # waits until its coordinator is there
    with RawClient(broker.bootstrap_servers) as client:
        made = client.ask(
            Api.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout=60_000, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        if is_known:
            client.ask(
                Api.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id=name,
                v3_and_below_producer_id=made.producer_id, v3_and_below_producer_epoch=made.producer_epoch,
                v3_and_below_topics=[{"name": "paid", "partitions": [partition]}],
            )  # fmt: skip
        batch = build_batch(
            [Record(0, 1000, None, b"v")], base_offset=0, producer_id=made.producer_id,
            producer_epoch=made.producer_epoch, base_sequence=0, is_transactional=True,
        )  # fmt: skip
        answer = client.ask(
            Api.PRODUCE, 9, transactional_id=name, acks=-1, timeout=5_000,
            topic_data=[{"name": "paid", "partition_data": [{"index": partition, "records": bytes(batch)}]}],
        )  # fmt: skip
        (done,) = answer.responses[0].partition_responses
        assert done.error_code.value == 0
        return int(done.base_offset)


async def test_an_open_transaction_is_shown_and_terminated(console, broker, admin):
    begin(broker, admin, "slow", 0, is_known=True)
    (row,) = (await console.json("/api/cluster/transactions?q=slow&limit_seconds=3600"))["transactions"]["rows"]
    assert (row["state"], row["is_too_long"], row["partitions"]) == (
        "Ongoing", False, [{"topic": "paid", "partition": 0}],
    )  # fmt: skip
    console.services.clock.wall_ms = lambda: admin_time_ms() + 7_200_000
    (row,) = (await console.json("/api/cluster/transactions?q=slow&limit_seconds=3600"))["transactions"]["rows"]
    assert (row["is_too_long"], row["open_ms"] > 3_600_000) == (True, True)
    assert "/actions/terminate-transaction?transactional_id=slow" in await console.page("/cluster/transactions")
    asked = await console.submit("terminate-transaction", transactional_id="slow")
    assert "is fenced" in asked.text
    await console.submit("terminate-transaction", step="run", transactional_id="slow", typed="slow")
    assert admin.describe_transaction("slow").state != "Ongoing"


def admin_time_ms() -> int:
    import time

    return time.time_ns() // 1_000_000


async def test_a_hanging_transaction_is_found_and_aborted(console, broker, admin):
    offset = begin(broker, admin, "lost", 1, is_known=False)
    quiet = await console.json("/api/cluster/transactions")
    assert quiet["hanging"] == []
    found = await console.json("/api/cluster/transactions?search=true&limit_seconds=0")
    (hanging,) = found["hanging"]
    assert (hanging["partition"], hanging["start_offset"], found["searched"] >= 2) == (1, offset, True)
    fields = {"topic": "paid", "partition": "1", "start_offset": str(offset)}
    assert "no coordinator" in (await console.submit("abort-transaction", **fields)).text
    assert (await console.submit("abort-transaction", step="run", typed="paid", **fields)).is_redirect
    at = TopicPartition("paid", 1)
    assert all(each.current_txn_start_offset < 0 for each in admin.describe_producers([at]).value(at))


async def test_a_young_transaction_is_not_aborted(console, broker, admin):
    offset = begin(broker, admin, "young", 0, is_known=False)
    at = TopicPartition("paid", 0)
    (written_ms,) = (each.last_timestamp_ms for each in admin.describe_producers([at]).value(at) if is_open(each))
    fields = {"topic": "paid", "partition": 0, "start_offset": offset}
    console.services.clock.wall_ms = lambda: written_ms + 59_000
    assert (await console.call("abort-transaction", **fields)).status_code == 422
    console.services.clock.wall_ms = lambda: written_ms + 61_000
    assert (await console.call("abort-transaction", **fields)).status_code == 200
    assert not any(is_open(each) for each in admin.describe_producers([at]).value(at))


def is_open(state: ProducerState) -> bool:
    return state.current_txn_start_offset >= 0


async def test_a_transaction_that_a_coordinator_knows_is_not_aborted(console, broker, admin):
    offset = begin(broker, admin, "fine", 0, is_known=True)
    refused = await console.call("abort-transaction", topic="paid", partition=0, start_offset=offset)
    assert (refused.status_code, "can be terminated" in refused.text) == (422, True)
    assert admin.describe_transaction("fine").state == "Ongoing"
    missing = await console.call("terminate-transaction", transactional_id="nobody")
    assert missing.json()["error"] == "transactional_id_not_found"
    admin.fence_producers(["fine"])


def test_a_transaction_hangs_if_no_coordinator_has_its_partition():
    def state(producer_id: int, last_ms: int = 0, start: int = 5) -> ProducerState:
        return ProducerState(producer_id, 0, 0, last_ms, -1, start)

    producers = {_AT: [state(1), state(2), state(3, last_ms=500), state(4, start=-1)]}
    known = [TransactionDescription("mine", 0, "Ongoing", 1, 0, 0, 0, (_AT,))]
    found = unknown_transactions(producers, known, before_ms=100)
    assert [(each.producer_id, each.coordinator_epoch) for each in found] == [(2, 0)]
