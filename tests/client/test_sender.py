"""Batches are sent, sent again, split and given up: what the sender makes of a broker's answers."""

from datetime import UTC, datetime

import pytest
from sender_bench import SenderBench

from headrace.client.errors import BrokerError, HeadraceError, KafkaTimeout, NotAuthorized, RecordTooLarge
from headrace.client.producer_batch import ProducerBatch
from headrace.client.types import TopicInfo
from headrace.protocol.kio import ErrorCode

SLOW = 8

# --------------------------------------------------------------------------------------------------------- delivering


async def test_a_record_is_delivered_where_the_broker_says():
    async with SenderBench() as bench:
        delivery = await bench.send(b"one")
        assert not delivery.done()
        bench.last.answer(base_offset=41)
        metadata = await delivery
        assert (metadata.topic, metadata.partition, metadata.offset) == ("t", 0, 41)
        assert bench.core.pool.available_bytes == bench.core.pool.total_bytes


async def test_the_offset_counts_within_the_batch_and_the_brokers_time_wins():
    async with SenderBench(linger_ms=10) as bench:
        first, second = bench.buffer(), bench.buffer()
        await bench.pass_time(10)
        bench.last.answer(base_offset=5, log_append_time=datetime.fromtimestamp(7, UTC))
        assert ((await first).offset, (await second).offset) == (5, 6)
        assert (await second).timestamp_ms == 7000


async def test_requests_are_pipelined_up_to_the_limit():
    async with SenderBench(max_in_flight_requests_per_connection=2) as bench:
        for number in range(4):
            await bench.send(b"%d" % number)
        assert [request.values for request in bench.requests] == [[b"0"], [b"1"]]
        bench.requests[0].answer()
        await bench.settle()
        assert len(bench.requests) == 3


async def test_a_request_takes_a_batch_of_every_partition():
    async with SenderBench(partitions=3, linger_ms=5) as bench:
        for partition in range(3):
            bench.buffer(b"%d" % partition, partition=partition)
        await bench.pass_time(5)
        assert sorted(bench.last.values) == [b"0", b"1", b"2"]


async def test_on_delivery_is_told_of_success_and_of_failure():
    told = []
    async with SenderBench() as bench:
        await bench.send(on_delivery=lambda *outcome: told.append(outcome))
        bench.last.answer(base_offset=3)
        await bench.settle()
        await bench.send(on_delivery=lambda *outcome: told.append(outcome))
        bench.last.answer(ErrorCode.topic_authorization_failed)
        await bench.settle()
    assert told[0][0].offset == 3
    assert told[0][1] is None
    assert told[1][0] is None
    assert isinstance(told[1][1], NotAuthorized)


async def test_a_callback_that_fails_disturbs_nobody(caplog):
    async with SenderBench(linger_ms=5) as bench:
        bench.buffer(on_delivery=lambda *_: 1 / 0)
        other = bench.buffer()
        await bench.pass_time(5)
        bench.last.answer()
        await other
    assert "on_delivery" in caplog.text


async def test_without_acks_what_is_written_is_delivered_at_an_unknown_offset():
    async with SenderBench(acks="0") as bench:
        delivery = await bench.send()
        assert bench.last.fields["acks"] == 0
        assert (await delivery).offset == -1


async def test_a_flush_waits_for_what_was_sent_before_and_not_for_linger():
    async with SenderBench(linger_ms=1000) as bench:
        delivery = bench.buffer()
        flushing = bench.sender._loop.create_task(bench.sender.flush())
        await bench.settle()
        assert not flushing.done()
        bench.buffer(b"later")
        bench.last.answer()
        await flushing
        assert delivery.done()


async def test_a_batch_that_has_to_wait_anyway_grows_past_batch_size():
    async with SenderBench(batch_size=1000, max_in_flight_requests_per_connection=2) as bench:
        for number in range(6):
            bench.buffer(b"%d" % number * 900)
            await bench.settle()
        assert [len(request.values) for request in bench.requests] == [1, 1]
        bench.requests[0].answer()
        await bench.settle()
        bench.requests[1].answer()
        await bench.settle()
        assert sum(len(request.values) for request in bench.requests) == 6
        assert max(len(request.values) for request in bench.requests) > 1
        for request in bench.requests[2:]:
            request.answer()
        await bench.settle()
        assert bench.core.pool.available_bytes == bench.core.pool.total_bytes


# ------------------------------------------------------------------------------------------------------- trying again


async def test_a_wrong_leader_refreshes_metadata_and_is_tried_again_after_a_pause():
    async with SenderBench() as bench:
        delivery = await bench.send()
        sent = bench.last.batches
        bench.last.answer(ErrorCode.not_leader_or_follower)
        await bench.settle()
        assert bench.cluster.refreshes == 1
        assert len(bench.requests) == 1
        await bench.pass_time(130)
        assert len(bench.requests) == 2
        assert bench.last.batches == sent
        bench.last.answer(base_offset=8)
        assert (await delivery).offset == 8


async def test_a_lost_connection_is_opened_again_and_what_was_sent_is_sent_in_order():
    async with SenderBench() as bench:
        deliveries = [await bench.send(b"%d" % number) for number in range(3)]
        sequences = [request.header.base_sequence for request in bench.requests]
        for request in bench.requests[:]:
            request.lose()
        await bench.settle()
        await bench.pass_time(130)
        for number in range(3):
            await bench.settle()
            assert bench.last.values == [b"%d" % number]
            assert bench.last.header.base_sequence == sequences[number]
            bench.last.answer(base_offset=number)
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]
        assert bench.cluster.connects == 2


async def test_one_request_at_a_time_keeps_the_order_without_idempotence():
    options = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    async with SenderBench(**options) as bench:
        for number in range(2):
            await bench.send(b"%d" % number)
        assert len(bench.requests) == 1
        bench.last.answer(ErrorCode.not_enough_replicas)
        await bench.settle()
        assert len(bench.requests) == 1
        await bench.pass_time(130)
        assert bench.last.values == [b"0"]
        bench.last.answer()
        await bench.settle()
        assert bench.last.values == [b"1"]


async def test_retries_are_counted():
    async with SenderBench(retries=1) as bench:
        delivery = await bench.send()
        bench.last.answer(ErrorCode.not_enough_replicas)
        await bench.settle()
        await bench.pass_time(130)
        bench.last.answer(ErrorCode.not_enough_replicas)
        with pytest.raises(BrokerError, match=r"t-0 did not take a record, tried 2 times.*min\.insync\.replicas"):
            await delivery


async def test_what_is_not_retriable_fails_at_once_with_the_brokers_words():
    async with SenderBench() as bench:
        delivery = await bench.send()
        bench.last.answer(ErrorCode.invalid_record, message="no key")
        with pytest.raises(BrokerError, match="t-0 did not take a record: no key"):
            await delivery
        with pytest.raises(BrokerError, match="no key"):
            await delivery


# -------------------------------------------------------------------------------------------------- sequences, epochs


async def test_nothing_is_sent_before_the_producer_has_its_id():
    bench = SenderBench()
    bench.buffer()
    bench.sender.step()
    assert bench.requests == []
    await bench.settle()
    assert (bench.last.header.producer_id, bench.last.header.base_sequence) == (5, 0)
    await bench.sender.stop()


async def test_who_may_not_have_a_producer_id_can_send_nothing():
    bench = SenderBench()
    bench.cluster.producer_ids = iter([ErrorCode.cluster_authorization_failed])
    delivery = bench.buffer()
    await bench.settle()
    with pytest.raises(NotAuthorized):
        await delivery
    await bench.sender.stop()


async def test_what_the_broker_has_already_is_delivered():
    async with SenderBench() as bench:
        delivery = await bench.send()
        bench.last.answer(ErrorCode.duplicate_sequence_number)
        assert (await delivery).offset == -1


@pytest.mark.parametrize("code", [ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id])
async def test_a_refused_number_begins_a_new_epoch(code):
    async with SenderBench() as bench:
        first = await bench.send(b"0")
        bench.last.answer()
        await first
        second, third = await bench.send(b"1"), await bench.send(b"2")
        for request in bench.requests[1:3]:
            request.answer(code)
        await bench.settle()
        await bench.pass_time(130)
        await bench.settle()
        found = [(r.values, r.header.producer_epoch, r.header.base_sequence) for r in bench.requests[3:]]
        assert found == [([b"1"], 1, 0), ([b"2"], 1, 1)]
        for request in bench.requests[3:]:
            request.answer()
        await second
        await third


async def test_one_behind_a_batch_that_failed_waits_for_its_turn():
    async with SenderBench() as bench:
        deliveries = [await bench.send(b"0"), await bench.send(b"1")]
        bench.requests[0].answer(ErrorCode.not_leader_or_follower)
        bench.requests[1].answer(ErrorCode.out_of_order_sequence_number)
        await bench.settle()
        await bench.pass_time(130)
        assert [(r.values, r.header.producer_epoch) for r in bench.requests[2:]] == [([b"0"], 0)]
        bench.last.answer()
        await bench.settle()
        assert (bench.last.values, bench.last.header.base_sequence) == ([b"1"], 1)
        bench.last.answer()
        for delivery in deliveries:
            await delivery


async def test_after_a_batch_that_was_refused_for_good_the_others_go_on():
    async with SenderBench() as bench:
        refused, other = await bench.send(b"0"), await bench.send(b"1")
        bench.requests[0].answer(ErrorCode.invalid_record)
        bench.requests[1].answer(ErrorCode.out_of_order_sequence_number)
        await bench.settle()
        await bench.pass_time(130)
        assert (bench.last.values, bench.last.header.producer_epoch, bench.last.header.base_sequence) == ([b"1"], 1, 0)
        bench.last.answer()
        await other
        with pytest.raises(BrokerError):
            await refused


# ----------------------------------------------------------------------------------------------------------- too large


async def test_a_batch_that_is_too_large_is_split_until_it_is_not():
    async with SenderBench(linger_ms=5) as bench:
        deliveries = [bench.buffer(b"%d" % number * 100) for number in range(4)]
        await bench.pass_time(5)
        offset, answered = 0, 0
        while answered < len(bench.requests):
            request = bench.requests[answered]
            answered += 1
            if len(request.values) > 1:
                request.answer(ErrorCode.message_too_large)
            else:
                request.answer(base_offset=offset)
                offset += 1
            await bench.settle()
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2, 3]
        assert bench.core.pool.available_bytes == bench.core.pool.total_bytes


async def test_a_record_that_is_too_large_by_itself_fails():
    async with SenderBench() as bench:
        delivery = await bench.send()
        bench.last.answer(ErrorCode.message_too_large)
        with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
            await delivery


# ------------------------------------------------------------------------------------------------------------ too late


async def test_what_is_not_delivered_in_time_fails_and_says_what_was_tried():
    async with SenderBench(delivery_timeout_ms=1000, request_timeout_ms=900) as bench:
        delivery = await bench.send()
        bench.last.answer(ErrorCode.not_enough_replicas)
        await bench.settle()
        await bench.pass_time(130)
        bench.last.lose()
        await bench.settle()
        await bench.pass_time(1000)
        with pytest.raises(KafkaTimeout, match=r"within 1000 ms \(delivery.timeout.ms\); failed 2 times.*broke"):
            await delivery
        assert bench.core.pool.available_bytes == bench.core.pool.total_bytes


async def test_a_broker_that_does_not_answer_is_given_up_and_its_late_answer_frees_the_memory():
    async with SenderBench(delivery_timeout_ms=1000, request_timeout_ms=900) as bench:
        delivery = await bench.send()
        await bench.pass_time(1000)
        with pytest.raises(KafkaTimeout, match="the broker has not answered"):
            await delivery
        assert bench.core.pool.available_bytes < bench.core.pool.total_bytes
        bench.last.answer()
        await bench.settle()
        assert bench.core.pool.available_bytes == bench.core.pool.total_bytes
        later = await bench.send()
        assert (bench.last.header.producer_epoch, bench.last.header.base_sequence) == (0, 1)
        bench.last.answer()
        await later


async def test_a_partition_without_a_leader_is_looked_for():
    async with SenderBench(delivery_timeout_ms=1000, request_timeout_ms=900) as bench:
        nodes, bench.cluster.metadata.nodes = bench.cluster.metadata.nodes, {}
        delivery = await bench.send()
        assert bench.cluster.refreshes > 0
        assert bench.requests == []
        bench.cluster.metadata.nodes = nodes
        await bench.settle()
        bench.last.answer()
        await delivery


async def test_a_mistake_of_ours_fails_what_waits_and_what_comes(monkeypatch):
    async with SenderBench() as bench:
        with_broker = await bench.send(b"one")
        monkeypatch.setattr(ProducerBatch, "seal", lambda *_, **__: 1 / 0)
        delivery = bench.buffer(b"two")
        with pytest.raises(ZeroDivisionError):  # for the loop to tell of
            bench.sender.step()
        for lost in (with_broker, delivery):
            with pytest.raises(HeadraceError, match=r"this producer is broken.*division by zero"):
                await lost
        later = bench.buffer(b"three")
        bench.sender.step()
        with pytest.raises(HeadraceError, match="broken"):
            await later


# --------------------------------------------------------------------------------------------------------- slow leaders


async def test_a_leader_that_takes_nothing_gets_no_records_where_one_partition_is_left():
    async with SenderBench(partitions=2, partitioner_availability_timeout_ms=100) as bench:
        first, second = bench.cluster.metadata.partitions("t")
        slow = second._replace(leader_id=SLOW)
        bench.cluster.metadata.topics = {"t": TopicInfo("t", None, (first, slow))}
        bench.sender.slow_leaders.ready(SLOW, 0, is_drained=True)
        bench.sender.slow_leaders.ready(SLOW, 101, is_drained=False)
        partitioner = bench.core.partitioner
        partitioner.partition("t", 2, [0, 1])
        partitioner.on_appended("t", 10**6, is_batch_done=True)
        await bench.send(partition=0)
        await bench.pass_time(1_000)
        drawn = set()
        for _ in range(100):
            drawn.add(partitioner.partition("t", 2, [0, 1]))
            partitioner.on_appended("t", 10**6, is_batch_done=True)
        assert drawn == {0}
