"""Transactions: all or nothing, who may do what when, and who is fenced. Both ways of KIP-890."""

import pytest
from producer_harness import has_marker, read_headers, read_values

from headrace import Broker
from headrace.client.errors import BrokerError, BrokerUnreachable, ProducerFenced, RecordTooLarge, TransactionError
from headrace.client.producer.async_producer import AsyncProducer
from headrace.client.transactions.states import NEXT, TransactionEvent, TransactionState
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from headrace.protocol.api import Api


@pytest.fixture
async def broker():
    async with Broker(config={"num.partitions": 2}) as broker:
        yield broker


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request):
    return request.param


async def started(broker, version, transactional_id="x", **options):
    options = {"linger_ms": 0, "retry_backoff_ms": 10} | options
    producer = AsyncProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id, **options)
    await producer.start()
    await producer.init_transactions()
    assert producer.transactions._requests.is_version_2
    producer.transactions._requests.is_version_2 = version == 2
    return producer


async def committed(broker):
    found = [await read_values(broker.bootstrap_servers, partition=at, is_committed=True) for at in range(2)]
    return found[0] + found[1]


async def committed_offset(producer, group="g", partition=0):
    answer = await producer._cluster.ask_coordinator(
        Api.OFFSET_FETCH, "group", group, version=7, group_id=group, require_stable=True,
        topics=[{"name": "t", "partition_indexes": [partition]}],
    )  # fmt: skip
    return int(answer.topics[0].partitions[0].committed_offset)


async def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker, version):
    producer = await started(broker, version)
    for round_number in range(4):
        await producer.begin_transaction()
        for partition in range(2):
            await producer.send("t", b"%d" % round_number, partition=partition)
        if round_number % 2:
            await producer.flush()
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
    await producer.close()
    assert await committed(broker) == [b"0", b"2", b"0", b"2"]
    assert all(header.is_transactional for header in await read_headers(broker.bootstrap_servers))


async def test_offsets_are_committed_with_the_transaction_or_not_at_all(broker, version):
    producer = await started(broker, version)
    place = ConsumerGroupMetadata("g")
    await producer.begin_transaction()
    await producer.send("t", b"v")
    await producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(7, "note")}, place)
    await producer.commit_transaction()
    assert await committed_offset(producer) == 7
    await producer.begin_transaction()
    await producer.send_offsets_to_transaction({("t", 0): 9}, "g")
    await producer.send_offsets_to_transaction({}, "g")
    await producer.abort_transaction()
    assert await committed_offset(producer) == 7
    await producer.close()


async def test_an_empty_transaction_is_ended_without_a_word(broker, version, monkeypatch):
    producer = await started(broker, version)
    asked = []
    monkeypatch.setattr(producer._cluster, "ask_coordinator", lambda *what, **_: asked.append(what))
    for end in (producer.commit_transaction, producer.abort_transaction):
        await producer.begin_transaction()
        await end()
    assert asked == []
    await producer.close()


async def test_what_was_not_sent_yet_is_dropped_by_an_abort(broker, version):
    producer = await started(broker, version, linger_ms=60_000, delivery_timeout_ms=120_000)
    await producer.begin_transaction()
    delivery = await producer.send("t", b"never")
    await producer.abort_transaction()
    with pytest.raises(TransactionError, match="aborted before the record was sent"):
        await delivery
    await producer.begin_transaction()
    await producer.send("t", b"kept", partition=0)
    await producer.commit_transaction()
    await producer.close()
    assert await read_values(broker.bootstrap_servers) == [b"kept"]


async def test_a_second_producer_of_the_same_id_fences_the_first(broker, version):
    first = await started(broker, version)
    await first.begin_transaction()
    await first.send("t", b"lost", partition=0)
    await first.flush()
    second = await started(broker, version)
    late = await first.send("t", b"late", partition=0)
    with pytest.raises(ProducerFenced, match=r"'x'|transactional\.id"):
        await first.commit_transaction()
    with pytest.raises((ProducerFenced, TransactionError)):
        await late
    with pytest.raises(ProducerFenced):
        await first.send("t", b"more")
    with pytest.raises(ProducerFenced):
        await first.begin_transaction()
    with pytest.raises(ProducerFenced):
        await first.abort_transaction()
    await second.begin_transaction()
    await second.send("t", b"mine", partition=0)
    await second.commit_transaction()
    await first.close()
    await second.close()
    assert await committed(broker) == [b"mine"]


async def test_a_record_that_failed_must_be_aborted_and_then_all_goes_on(broker, version):
    producer = await started(broker, version, max_request_size=4_000_000)
    await producer.begin_transaction()
    await producer.send("t", b"before", partition=0)
    large = await producer.send("t", b"x" * 2_000_000, partition=0)
    after = await producer.send("t", b"after", partition=0)
    with pytest.raises(RecordTooLarge):
        await producer.commit_transaction()
    with pytest.raises(RecordTooLarge):
        await producer.send("t", b"more")
    with pytest.raises(RecordTooLarge):
        await producer.commit_transaction()
    with pytest.raises(RecordTooLarge):
        await large
    await producer.abort_transaction()
    assert after.done()
    for _ in range(2):
        await producer.begin_transaction()
        await producer.send("t", b"again", partition=0)
        await producer.commit_transaction()
    await producer.close()
    assert await committed(broker) == [b"again", b"again"]


async def test_the_coordinator_and_the_leader_may_be_restarted(tmp_path, version):
    async with Broker(data=tmp_path) as broker:
        address = broker.bootstrap_servers
        producer = await started(broker, version, reconnect_backoff_ms=10)
        await producer.begin_transaction()
        await producer.send("t", b"before")
        await producer.flush()
    await producer.send("t", b"during")
    async with Broker(data=tmp_path, listen=address):
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"after")
        await producer.commit_transaction()
        await producer.close()
        assert await read_values(address, is_committed=True) == [b"before", b"during", b"after"]


async def test_a_transaction_that_lasts_too_long_is_aborted_by_the_coordinator(version):
    async with Broker() as broker:
        producer = await started(broker, version, transaction_timeout_ms=500)
        await producer.begin_transaction()
        await producer.send("t", b"late")
        await producer.flush()
        while not await has_marker(broker.bootstrap_servers):
            pass
        with pytest.raises(BrokerError, match=r"lasted longer than transaction\.timeout\.ms"):
            await producer.commit_transaction()
        await producer.close()
        assert await read_values(broker.bootstrap_servers, is_committed=True) == []


async def test_a_commit_that_was_not_answered_is_made_again(tmp_path, version):
    async with Broker(data=tmp_path) as broker:
        address = broker.bootstrap_servers
        producer = await started(broker, version, reconnect_backoff_ms=10, max_block_ms=4000)
        await producer.begin_transaction()
        await producer.send("t", b"v")
        await producer.flush()
    with pytest.raises(BrokerUnreachable):
        await producer.commit_transaction()
    with pytest.raises(TransactionError, match="make the same call again"):
        await producer.abort_transaction()
    with pytest.raises(TransactionError, match="make the same call again"):
        await producer.send("t", b"w")
    async with Broker(data=tmp_path, listen=address):
        await producer.commit_transaction()
        assert await read_values(address, is_committed=True) == [b"v"]
        await producer.close()


# ------------------------------------------------------------------------------------------------------------- states


async def test_calls_out_of_turn_are_refused_and_change_nothing(broker):
    producer = AsyncProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x")
    await producer.start()
    with pytest.raises(TransactionError, match=r"'x' has not called init_transactions\(\)"):
        await producer.begin_transaction()
    with pytest.raises(TransactionError, match="init_transactions"):
        await producer.send("t", b"v")
    await producer.init_transactions()
    with pytest.raises(TransactionError, match="has begun no transaction"):
        await producer.init_transactions()
    with pytest.raises(TransactionError, match="has begun no transaction"):
        await producer.send("t", b"v")
    for call in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(TransactionError, match="has begun no transaction"):
            await call()
    await producer.begin_transaction()
    with pytest.raises(TransactionError, match="is in a transaction"):
        await producer.begin_transaction()
    await producer.send("t", b"v", partition=0)
    await producer.commit_transaction()
    await producer.close()
    assert await committed(broker) == [b"v"]


async def test_transactions_need_a_transactional_id(broker):
    async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with pytest.raises(ValueError, match="transactional_id"):
            await producer.init_transactions()


def test_the_table_leads_out_of_every_state_but_the_last():
    for state in TransactionState:
        following = {NEXT.get((state, call)) for call in TransactionEvent} - {None, state, TransactionState.FATAL}
        assert bool(following) is (state is not TransactionState.FATAL)
        assert NEXT[state, TransactionEvent.FENCED] is TransactionState.FATAL
