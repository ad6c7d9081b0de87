"""Batches are sent, sent again, split and given up: what the sender makes of a broker's answers."""

from datetime import UTC, datetime

import pytest
from sender_harness import SenderHarness

from headrace.client.errors import BrokerError, HeadraceError, KafkaTimeout, NotAuthorized, RecordTooLarge
from headrace.client.producer.batch import ProducerBatch
from headrace.client.types import TopicInfo
from headrace.protocol.kio import ErrorCode

SLOW = 8

# --------------------------------------------------------------------------------------------------------- delivering


async def test_a_record_is_delivered_where_the_broker_says():
    async with SenderHarness() as harness:
        delivery = await harness.send(b"one")
        assert not delivery.done()
        harness.last.answer(base_offset=41)
        metadata = await delivery
        assert (metadata.topic, metadata.partition, metadata.offset) == ("t", 0, 41)
        assert harness.record_buffer.pool.available_bytes == harness.record_buffer.pool.total_bytes


async def test_the_offset_counts_within_the_batch_and_the_brokers_time_wins():
    async with SenderHarness(linger_ms=10) as harness:
        first, second = harness.buffer(), harness.buffer()
        await harness.pass_time(10)
        harness.last.answer(base_offset=5, log_append_time=datetime.fromtimestamp(7, UTC))
        assert ((await first).offset, (await second).offset) == (5, 6)
        assert (await second).timestamp_ms == 7000


async def test_requests_are_pipelined_up_to_the_limit():
    async with SenderHarness(max_in_flight_requests_per_connection=2) as harness:
        for number in range(4):
            await harness.send(b"%d" % number)
        assert [request.values for request in harness.requests] == [[b"0"], [b"1"]]
        harness.requests[0].answer()
        await harness.settle()
        assert len(harness.requests) == 3


async def test_a_request_takes_a_batch_of_every_partition():
    async with SenderHarness(partitions=3, linger_ms=5) as harness:
        for partition in range(3):
            harness.buffer(b"%d" % partition, partition=partition)
        await harness.pass_time(5)
        assert sorted(harness.last.values) == [b"0", b"1", b"2"]


async def test_on_delivery_is_told_of_success_and_of_failure():
    told = []
    async with SenderHarness() as harness:
        await harness.send(on_delivery=lambda *outcome: told.append(outcome))
        harness.last.answer(base_offset=3)
        await harness.settle()
        await harness.send(on_delivery=lambda *outcome: told.append(outcome))
        harness.last.answer(ErrorCode.topic_authorization_failed)
        await harness.settle()
    assert told[0][0].offset == 3
    assert told[0][1] is None
    assert told[1][0] is None
    assert isinstance(told[1][1], NotAuthorized)


async def test_a_callback_that_fails_disturbs_nobody(caplog):
    async with SenderHarness(linger_ms=5) as harness:
        harness.buffer(on_delivery=lambda *_: 1 / 0)
        other = harness.buffer()
        await harness.pass_time(5)
        harness.last.answer()
        await other
    assert "on_delivery" in caplog.text


async def test_without_acks_what_is_written_is_delivered_at_an_unknown_offset():
    async with SenderHarness(acks="0") as harness:
        delivery = await harness.send()
        assert harness.last.fields["acks"] == 0
        assert (await delivery).offset == -1


async def test_a_flush_waits_for_what_was_sent_before_and_not_for_linger():
    async with SenderHarness(linger_ms=1000) as harness:
        delivery = harness.buffer()
        flushing = harness.sender._loop.create_task(harness.sender.flush())
        await harness.settle()
        assert not flushing.done()
        harness.buffer(b"later")
        harness.last.answer()
        await flushing
        assert delivery.done()


async def test_a_batch_that_has_to_wait_anyway_grows_past_batch_size():
    async with SenderHarness(batch_size=1000, max_in_flight_requests_per_connection=2) as harness:
        for number in range(6):
            harness.buffer(b"%d" % number * 900)
            await harness.settle()
        assert [len(request.values) for request in harness.requests] == [1, 1]
        harness.requests[0].answer()
        await harness.settle()
        harness.requests[1].answer()
        await harness.settle()
        assert sum(len(request.values) for request in harness.requests) == 6
        assert max(len(request.values) for request in harness.requests) > 1
        for request in harness.requests[2:]:
            request.answer()
        await harness.settle()
        assert harness.record_buffer.pool.available_bytes == harness.record_buffer.pool.total_bytes


# ------------------------------------------------------------------------------------------------------- trying again


async def test_a_wrong_leader_refreshes_metadata_and_is_tried_again_after_a_pause():
    async with SenderHarness() as harness:
        delivery = await harness.send()
        sent = harness.last.batches
        harness.last.answer(ErrorCode.not_leader_or_follower)
        await harness.settle()
        assert harness.cluster.refreshes == 1
        assert len(harness.requests) == 1
        await harness.pass_time(130)
        assert len(harness.requests) == 2
        assert harness.last.batches == sent
        harness.last.answer(base_offset=8)
        assert (await delivery).offset == 8


async def test_a_lost_connection_is_opened_again_and_what_was_sent_is_sent_in_order():
    async with SenderHarness() as harness:
        deliveries = [await harness.send(b"%d" % number) for number in range(3)]
        sequences = [request.header.base_sequence for request in harness.requests]
        for request in harness.requests[:]:
            request.lose()
        await harness.settle()
        await harness.pass_time(130)
        for number in range(3):
            await harness.settle()
            assert harness.last.values == [b"%d" % number]
            assert harness.last.header.base_sequence == sequences[number]
            harness.last.answer(base_offset=number)
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]
        assert harness.cluster.connects == 2


async def test_one_request_at_a_time_keeps_the_order_without_idempotence():
    options = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    async with SenderHarness(**options) as harness:
        for number in range(2):
            await harness.send(b"%d" % number)
        assert len(harness.requests) == 1
        harness.last.answer(ErrorCode.not_enough_replicas)
        await harness.settle()
        assert len(harness.requests) == 1
        await harness.pass_time(130)
        assert harness.last.values == [b"0"]
        harness.last.answer()
        await harness.settle()
        assert harness.last.values == [b"1"]


async def test_retries_are_counted():
    async with SenderHarness(retries=1) as harness:
        delivery = await harness.send()
        harness.last.answer(ErrorCode.not_enough_replicas)
        await harness.settle()
        await harness.pass_time(130)
        harness.last.answer(ErrorCode.not_enough_replicas)
        with pytest.raises(BrokerError, match=r"t-0 did not accept a record in 2 attempts.*min\.insync\.replicas"):
            await delivery


async def test_what_is_not_retriable_fails_at_once_with_the_brokers_words():
    async with SenderHarness() as harness:
        delivery = await harness.send()
        harness.last.answer(ErrorCode.invalid_record, message="no key")
        with pytest.raises(BrokerError, match="t-0 did not accept a record: no key"):
            await delivery
        with pytest.raises(BrokerError, match="no key"):
            await delivery


# -------------------------------------------------------------------------------------------------- sequences, epochs


async def test_nothing_is_sent_before_the_producer_has_its_id():
    harness = SenderHarness()
    harness.buffer()
    harness.sender.step()
    assert harness.requests == []
    await harness.settle()
    assert (harness.last.header.producer_id, harness.last.header.base_sequence) == (5, 0)
    await harness.sender.stop()


async def test_who_may_not_have_a_producer_id_can_send_nothing():
    harness = SenderHarness()
    harness.cluster.producer_ids = iter([ErrorCode.cluster_authorization_failed])
    delivery = harness.buffer()
    await harness.settle()
    with pytest.raises(NotAuthorized):
        await delivery
    await harness.sender.stop()


async def test_what_the_broker_has_already_is_delivered():
    async with SenderHarness() as harness:
        delivery = await harness.send()
        harness.last.answer(ErrorCode.duplicate_sequence_number)
        assert (await delivery).offset == -1


@pytest.mark.parametrize("code", [ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id])
async def test_a_refused_number_begins_a_new_epoch(code):
    async with SenderHarness() as harness:
        first = await harness.send(b"0")
        harness.last.answer()
        await first
        second, third = await harness.send(b"1"), await harness.send(b"2")
        for request in harness.requests[1:3]:
            request.answer(code)
        await harness.settle()
        await harness.pass_time(130)
        await harness.settle()
        found = [(r.values, r.header.producer_epoch, r.header.base_sequence) for r in harness.requests[3:]]
        assert found == [([b"1"], 1, 0), ([b"2"], 1, 1)]
        for request in harness.requests[3:]:
            request.answer()
        await second
        await third


async def test_one_behind_a_batch_that_failed_waits_for_its_turn():
    async with SenderHarness() as harness:
        deliveries = [await harness.send(b"0"), await harness.send(b"1")]
        harness.requests[0].answer(ErrorCode.not_leader_or_follower)
        harness.requests[1].answer(ErrorCode.out_of_order_sequence_number)
        await harness.settle()
        await harness.pass_time(130)
        assert [(r.values, r.header.producer_epoch) for r in harness.requests[2:]] == [([b"0"], 0)]
        harness.last.answer()
        await harness.settle()
        assert (harness.last.values, harness.last.header.base_sequence) == ([b"1"], 1)
        harness.last.answer()
        for delivery in deliveries:
            await delivery


async def test_after_a_batch_that_was_refused_for_good_the_others_go_on():
    async with SenderHarness() as harness:
        refused, other = await harness.send(b"0"), await harness.send(b"1")
        harness.requests[0].answer(ErrorCode.invalid_record)
        harness.requests[1].answer(ErrorCode.out_of_order_sequence_number)
        await harness.settle()
        await harness.pass_time(130)
        assert (harness.last.values, harness.last.header.producer_epoch, harness.last.header.base_sequence) == (
            [b"1"],
            1,
            0,
        )
        harness.last.answer()
        await other
        with pytest.raises(BrokerError):
            await refused


# ----------------------------------------------------------------------------------------------------------- too large


async def test_a_batch_that_is_too_large_is_split_until_it_is_not():
    async with SenderHarness(linger_ms=5) as harness:
        deliveries = [harness.buffer(b"%d" % number * 100) for number in range(4)]
        await harness.pass_time(5)
        offset, answered = 0, 0
        while answered < len(harness.requests):
            request = harness.requests[answered]
            answered += 1
            if len(request.values) > 1:
                request.answer(ErrorCode.message_too_large)
            else:
                request.answer(base_offset=offset)
                offset += 1
            await harness.settle()
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2, 3]
        assert harness.record_buffer.pool.available_bytes == harness.record_buffer.pool.total_bytes


async def test_a_record_that_is_too_large_by_itself_fails():
    async with SenderHarness() as harness:
        delivery = await harness.send()
        harness.last.answer(ErrorCode.message_too_large)
        with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
            await delivery


# ------------------------------------------------------------------------------------------------------------ too late


async def test_what_is_not_delivered_in_time_fails_and_says_what_was_tried():
    async with SenderHarness(delivery_timeout_ms=1000, request_timeout_ms=900) as harness:
        delivery = await harness.send()
        harness.last.answer(ErrorCode.not_enough_replicas)
        await harness.settle()
        await harness.pass_time(130)
        harness.last.lose()
        await harness.settle()
        await harness.pass_time(1000)
        with pytest.raises(
            KafkaTimeout, match=r"1000 ms \(delivery.timeout.ms\); 2 attempts failed, the last one.*broke"
        ):
            await delivery
        assert harness.record_buffer.pool.available_bytes == harness.record_buffer.pool.total_bytes


async def test_a_broker_that_does_not_answer_is_given_up_and_its_late_answer_frees_the_memory():
    async with SenderHarness(delivery_timeout_ms=1000, request_timeout_ms=900) as harness:
        delivery = await harness.send()
        await harness.pass_time(1000)
        with pytest.raises(KafkaTimeout, match="the broker has not answered"):
            await delivery
        assert harness.record_buffer.pool.available_bytes < harness.record_buffer.pool.total_bytes
        harness.last.answer()
        await harness.settle()
        assert harness.record_buffer.pool.available_bytes == harness.record_buffer.pool.total_bytes
        later = await harness.send()
        assert (harness.last.header.producer_epoch, harness.last.header.base_sequence) == (0, 1)
        harness.last.answer()
        await later


async def test_a_partition_without_a_leader_is_looked_for():
    async with SenderHarness(delivery_timeout_ms=1000, request_timeout_ms=900) as harness:
        nodes, harness.cluster.metadata.nodes = harness.cluster.metadata.nodes, {}
        delivery = await harness.send()
        assert harness.cluster.refreshes > 0
        assert harness.requests == []
        harness.cluster.metadata.nodes = nodes
        await harness.settle()
        harness.last.answer()
        await delivery


async def test_a_mistake_of_ours_fails_what_waits_and_what_comes(monkeypatch):
    async with SenderHarness() as harness:
        with_broker = await harness.send(b"one")
        monkeypatch.setattr(ProducerBatch, "seal", lambda *_, **__: 1 / 0)
        delivery = harness.buffer(b"two")
        with pytest.raises(ZeroDivisionError):  # for the loop to tell of
            harness.sender.step()
        for lost in (with_broker, delivery):
            with pytest.raises(HeadraceError, match=r"a bug in the producer has stopped it.*division by zero"):
                await lost
        later = harness.buffer(b"three")
        harness.sender.step()
        with pytest.raises(HeadraceError, match="a bug in the producer"):
            await later


# --------------------------------------------------------------------------------------------------------- slow leaders


async def test_a_leader_that_takes_nothing_gets_no_records_where_one_partition_is_left():
    async with SenderHarness(partitions=2, partitioner_availability_timeout_ms=100) as harness:
        first, second = harness.cluster.metadata.partitions("t")
        slow = second._replace(leader_id=SLOW)
        harness.cluster.metadata.topics = {"t": TopicInfo("t", None, (first, slow))}
        harness.sender.slow_leaders.ready(SLOW, 0, is_drained=True)
        harness.sender.slow_leaders.ready(SLOW, 101, is_drained=False)
        partitioner = harness.record_buffer.partitioner
        partitioner.partition("t", 2, [0, 1])
        partitioner.on_appended("t", 10**6, is_batch_done=True)
        await harness.send(partition=0)
        await harness.pass_time(1_000)
        drawn = set()
        for _ in range(100):
            drawn.add(partitioner.partition("t", 2, [0, 1]))
            partitioner.on_appended("t", 10**6, is_batch_done=True)
        assert drawn == {0}


# ---------------------------------------------------------------------------------------------------------- throttling


async def test_a_broker_that_throttles_gets_no_requests_and_its_batches_wait_in_the_buffer():
    async with SenderHarness() as harness:
        connection = harness.cluster.open
        connection.is_throttled, connection.throttle_left_ms = True, 10.0
        delivery = await harness.send()
        await harness.send(b"w")
        assert harness.requests == []
        connection.is_throttled = False
        await harness.settle()
        assert harness.last.values == [b"v", b"w"] or len(harness.requests) == 2
        for request in harness.requests:
            request.answer()
        await delivery


async def test_the_sender_wakes_when_the_throttling_ends():
    async with SenderHarness() as harness:
        connection = harness.cluster.open
        connection.is_throttled, connection.throttle_left_ms = True, 10.0
        await harness.send()
        connection.is_throttled = False
        await connection.has_request.wait()  # The sender's own timer runs the next step.
        harness.last.answer()


async def test_retries_and_errors_are_counted():
    async with SenderHarness(retries=1, enable_idempotence=False) as harness:
        harness.sender.metrics.publish(harness.cluster.metadata, harness.record_buffer.pool, harness.sender.in_flight)
        delivery = await harness.send()
        harness.last.answer(ErrorCode.not_leader_or_follower)
        await harness.settle()
        await harness.pass_time(200)
        harness.last.answer(ErrorCode.not_leader_or_follower)
        with pytest.raises(BrokerError):
            await delivery
        metrics = harness.sender.metrics._registry.metrics()
        assert metrics.value("record-retry-total", topic="t") == metrics.value("record-retry-total") == 1
        assert metrics.value("record-error-total", topic="t") == metrics.value("record-error-total") == 1
        assert metrics.value("record-send-total") == 2
