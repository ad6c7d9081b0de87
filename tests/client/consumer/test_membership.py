"""Consumers in classic groups: sharing, rebalances, commits, static members, leaving."""

import asyncio
import re

import pytest
from reader_harness import ReaderHarness, at, meanwhile, poll_until, read, settle, unique, values

from headrace import AsyncConsumer, AsyncProducer, OffsetAndMetadata, TopicPartition
from headrace.client.errors import BrokerError, ErrorCode, HeadraceError, MemberFenced
from headrace.client.membership.classic import MembershipState

EAGER = ["range", "roundrobin", "sticky"]


class Log:
    """What a listener was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    def callbacks(self) -> dict[str, object]:
        def note(kind: str):
            def called(partitions: list[TopicPartition]) -> None:
                self.events.append((kind, [partition.partition for partition in partitions]))

            return called

        return {"on_assigned": note("assigned"), "on_revoked": note("revoked"), "on_lost": note("lost")}


async def test_a_consumer_alone_gets_everything_and_commits_when_it_is_closed(harness: ReaderHarness):
    name = await harness.topic(3)
    for index in range(3):
        await harness.fill(name, range(5), partition=index)
    consumer, log = harness.consumer(), Log()
    consumer.subscribe([name], **log.callbacks())
    assert consumer.subscription() == {name}
    assert len(await read(consumer, 15)) == 15
    assert log.events == [("assigned", [0, 1, 2])]
    await consumer.close()
    assert log.events[1:] == [("revoked", [0, 1, 2])]
    heir = harness.consumer()
    assert await heir.committed(*at(name, 0, 1, 2)) == {
        one: OffsetAndMetadata(5, leader_epoch=0) for one in at(name, 0, 1, 2)
    }
    heir.subscribe([name])
    await harness.fill(name, ["new"], partition=1)
    assert values(await read(heir, 1)) == ["new"]


@pytest.mark.parametrize("strategy", [*EAGER, "cooperative-sticky"])
async def test_three_share_and_take_over_from_who_leaves(harness: ReaderHarness, strategy: str):
    name = await harness.topic(6)
    options = {"partition_assignment_strategy": strategy}
    consumers = [harness.consumer(name, **options)]
    await settle(6, *consumers)
    for _ in range(2):
        consumers.append(harness.consumer(name, **options))
        await settle(6, *consumers)
    assert [len(consumer.assignment()) for consumer in consumers] == [2, 2, 2]
    await meanwhile(consumers[0].close(), *consumers[1:])
    await settle(6, *consumers[1:])
    assert [len(consumer.assignment()) for consumer in consumers[1:]] == [3, 3]


async def test_records_are_read_once_across_rebalances(harness: ReaderHarness):
    name = await harness.topic(4)
    for index in range(4):
        await harness.fill(name, range(index * 100, index * 100 + 100), partition=index)
    first = harness.consumer(name, max_poll_records=7)
    second = harness.consumer(name, max_poll_records=7)
    seen = values(await read(first, 30))
    seen += values(await poll_until(lambda: second.assignment(), first, second))
    more: list[str] = []
    while len(seen) + len(more) < 400:
        both = await asyncio.gather(first.poll(20), second.poll(20))
        more += values(both[0]) + values(both[1])
    assert sorted(map(int, seen + more)) == list(range(400))


async def test_an_eager_rebalance_takes_all_and_gives_anew(harness: ReaderHarness):
    name = await harness.topic(4)
    first, log = harness.consumer(partition_assignment_strategy="range"), Log()
    first.subscribe([name], **log.callbacks())
    await settle(4, first)
    second = harness.consumer(name, partition_assignment_strategy="range")
    await settle(4, first, second)
    assert log.events[:2] == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]
    assert len(log.events[2][1]) == 2


async def test_a_cooperative_rebalance_takes_only_what_moves(harness: ReaderHarness):
    name = await harness.topic(4)
    first, log = harness.consumer(partition_assignment_strategy="cooperative-sticky"), Log()
    first.subscribe([name], **log.callbacks())
    await settle(4, first)
    second = harness.consumer(name, partition_assignment_strategy="cooperative-sticky")
    await settle(4, first, second)
    assert log.events[0] == ("assigned", [0, 1, 2, 3])
    kinds = [(kind, len(partitions)) for kind, partitions in log.events[1:] if partitions]
    assert kinds == [("revoked", 2)]


async def test_callbacks_may_commit_and_seek_and_be_coroutines(harness: ReaderHarness):
    name = await harness.topic(1)
    await harness.fill(name, range(10))
    consumer = harness.consumer(enable_auto_commit=False)

    async def on_assigned(partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            consumer.seek(partition, 6)

    async def on_revoked(partitions: list[TopicPartition]) -> None:
        await consumer.commit(dict.fromkeys(partitions, 8))

    consumer.subscribe([name], on_assigned=on_assigned, on_revoked=on_revoked)
    assert values(await read(consumer, 1)) == ["6"]
    await consumer.close()
    assert await harness.consumer().committed(*at(name, 0)) == {TopicPartition(name, 0): OffsetAndMetadata(8)}


async def test_what_a_callback_raises_the_poll_raises(harness: ReaderHarness):
    name = await harness.topic(1)
    consumer = harness.consumer()

    def on_assigned(_: list[TopicPartition]) -> None:
        raise RuntimeError("mine")

    consumer.subscribe([name], on_assigned=on_assigned)
    with pytest.raises(RuntimeError, match="mine"):
        await poll_until(lambda: False, consumer)
    assert consumer.assignment() == set(at(name, 0))


async def test_a_static_member_comes_back_without_a_rebalance(harness: ReaderHarness):
    name = await harness.topic(4)
    options = {"partition_assignment_strategy": "range"}
    other, log = harness.consumer(**options), Log()
    other.subscribe([name], **log.callbacks())
    static = harness.consumer(name, group_instance_id="one", **options)
    await settle(4, other, static)
    before, share = len(log.events), static.assignment()
    await static.close()
    again = harness.consumer(name, group_instance_id="one", **options)
    await settle(4, other, again)
    assert again.assignment() == share
    assert len(log.events) == before


async def test_two_with_one_instance_id_do_not_go_together(harness: ReaderHarness):
    name = await harness.topic(1)
    first = harness.consumer(name, group_instance_id="one")
    await settle(1, first)
    second = harness.consumer(name, group_instance_id="one")
    await settle(1, second)
    with pytest.raises(MemberFenced, match=re.escape("group.instance.id")):
        await poll_until(lambda: False, first)


async def test_a_pattern_follows_topics_as_they_come(harness: ReaderHarness):
    prefix = unique("many")
    await harness.create(f"{prefix}-a", 2)
    consumer = harness.consumer(metadata_max_age_ms=50)
    consumer.subscribe(pattern=rf"{prefix}-.")
    await settle(2, consumer)
    await harness.create(f"{prefix}-long", 1)
    await harness.create(f"{prefix}-b", 1)
    await settle(3, consumer)
    assert consumer.subscription() == {f"{prefix}-a", f"{prefix}-b"}


async def test_new_partitions_of_a_topic_are_shared_out(harness: ReaderHarness):
    name = await harness.topic(1)
    consumer = harness.consumer(name, metadata_max_age_ms=50)
    await settle(1, consumer)
    await harness.widen(name, 3)
    await settle(3, consumer)
    assert consumer.assignment() == set(at(name, 0, 1, 2))


async def test_subscribing_to_something_else(harness: ReaderHarness):
    one, other = await harness.topic(1), await harness.topic(2)
    consumer = harness.consumer(one)
    await settle(1, consumer)
    consumer.subscribe([other])
    await settle(2, consumer)
    assert consumer.assignment() == set(at(other, 0, 1))
    await consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.assign(at(one, 0))
    assert consumer.assignment() == set(at(one, 0))


async def test_a_topic_that_is_not_there_is_waited_for(harness: ReaderHarness):
    name = unique()
    consumer = harness.consumer(name, allow_auto_create_topics=False)
    assert await consumer.poll(100) == []
    await harness.create(name, 2)
    await settle(2, consumer)


async def test_commits(harness: ReaderHarness):
    name = await harness.topic(2)
    zero, one = at(name, 0, 1)
    await harness.fill(name, range(10))
    consumer = harness.consumer(name, enable_auto_commit=False)
    await read(consumer, 4)
    assert await consumer.committed() == {zero: None, one: None}
    await consumer.commit()
    assert (await consumer.committed(zero))[zero] == OffsetAndMetadata(4, leader_epoch=0)
    await consumer.commit({zero: OffsetAndMetadata(2, "why"), one: 7})
    assert await consumer.committed() == {zero: OffsetAndMetadata(2, "why"), one: OffsetAndMetadata(7)}
    told = []
    commits = [consumer.commit_nowait({zero: offset}, lambda *found: told.append(found)) for offset in (5, 6)]
    await asyncio.gather(*commits)
    assert told == [({zero: OffsetAndMetadata(5)}, None), ({zero: OffsetAndMetadata(6)}, None)]
    assert (await consumer.committed(zero))[zero] == OffsetAndMetadata(6)


async def test_an_iteration_commits_what_was_seen_and_no_more(harness: ReaderHarness):
    name = await harness.topic(1)
    await harness.fill(name, range(10))
    consumer = harness.consumer(name, enable_auto_commit=False)
    async for record in consumer:
        if record.offset == 5:
            await consumer.commit()
            break
    assert (await consumer.committed())[TopicPartition(name, 0)] == OffsetAndMetadata(6, leader_epoch=0)


async def test_offsets_are_committed_automatically(harness: ReaderHarness):
    name = await harness.topic(1)
    (partition,) = at(name, 0)
    await harness.fill(name, range(10))
    consumer = harness.consumer(name, auto_commit_interval_ms=1)
    await read(consumer, 10)
    other = harness.consumer()
    while (await other.committed(partition))[partition] != OffsetAndMetadata(10, leader_epoch=0):
        await consumer.poll(5)


async def test_a_consumer_of_partitions_of_its_own_commits_to_its_group(harness: ReaderHarness):
    name = await harness.topic(1)
    await harness.fill(name, range(10))
    first = harness.consumer()
    first.assign(at(name, 0))
    await read(first, 3)
    await first.close()
    second = harness.consumer()
    second.assign(at(name, 0))
    assert values(await read(second, 1)) == ["3"]


async def test_positions_that_a_transaction_commits(harness: ReaderHarness):
    name = await harness.topic(1)
    (partition,) = at(name, 0)
    await harness.fill(name, range(10))
    consumer = harness.consumer(name, enable_auto_commit=False)
    await read(consumer, 5)
    async with AsyncProducer(bootstrap_servers=harness.servers, transactional_id=unique("id")) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({partition: 5}, consumer.group_metadata())
        await producer.commit_transaction()
    assert (await consumer.committed())[partition] == OffsetAndMetadata(5)


async def test_who_does_not_poll_is_out_and_joins_again(harness: ReaderHarness):
    name = await harness.topic(2)
    await harness.fill(name, range(5))
    slow, log = harness.consumer(max_poll_interval_ms=300, session_timeout_ms=6000), Log()
    slow.subscribe([name], **log.callbacks())
    await settle(2, slow)
    quick = harness.consumer(name)
    # The slow one does not poll: it leaves by itself, and the other gets everything.
    await poll_until(lambda: len(quick.assignment()) == 2, quick)
    with pytest.raises(HeadraceError):
        await slow.commit({TopicPartition(name, 0): 1})
    await settle(2, slow, quick)
    assert ("lost", [0, 1]) in log.events


async def test_a_generation_that_has_passed_is_no_new_member(harness: ReaderHarness):
    name = await harness.topic(2)
    consumer, log = harness.consumer(), Log()
    consumer.subscribe([name], **log.callbacks())
    await settle(2, consumer)
    before = consumer.group_metadata()
    consumer._poll_loop.membership.commit_refused(ErrorCode.illegal_generation)
    assert consumer.group_metadata().generation_id == -1
    await poll_until(lambda: log.events[-1][0] == "assigned" and len(log.events) == 3, consumer)
    assert log.events[1:] == [("lost", [0, 1]), ("assigned", [0, 1])]
    assert consumer.group_metadata().member_id == before.member_id


async def test_who_waits_for_others_to_join_can_be_closed_at_once(harness: ReaderHarness):
    name = await harness.topic(2)
    first = harness.consumer(name)
    await settle(2, first)
    second = harness.consumer(name)
    assert await second.poll(100) == []  # its join is held until the first one polls
    async with asyncio.timeout(4):
        await second.close()
    await settle(2, first)


async def test_who_is_closed_before_it_has_joined_holds_up_nobody(harness: ReaderHarness):
    name = await harness.topic(1)
    hasty, patient = harness.consumer(name), harness.consumer(name)
    await hasty.start()
    assert await hasty.poll(0) == []  # its join is on the way
    await hasty.close()
    async with asyncio.timeout(10):
        await settle(1, patient)


async def test_commits_do_not_wait_for_others_to_join(harness: ReaderHarness):
    name = await harness.topic(2)
    options = {"partition_assignment_strategy": "cooperative-sticky", "enable_auto_commit": False}
    first, second, third = (harness.consumer(name, **options) for _ in range(3))
    await settle(2, first, second)
    # The first one notices that a third has come, and waits for the second, which does not poll.
    await poll_until(lambda: first._poll_loop.membership.state is MembershipState.JOINING, first, third)
    (mine,) = first.assignment()
    async with asyncio.timeout(4):
        await first.commit({mine: 1})
        assert await first.committed(mine) == {mine: OffsetAndMetadata(1)}


async def test_a_poll_that_is_cancelled_loses_nothing(harness: ReaderHarness):
    name = await harness.topic(1)
    await harness.fill(name, range(3))
    consumer = harness.consumer(name)
    for _ in range(5):
        polling = asyncio.ensure_future(consumer.poll(1000))
        await asyncio.sleep(0)
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
    assert values(await read(consumer, 3)) == ["0", "1", "2"]


async def test_a_group_that_does_not_want_us_says_why(harness: ReaderHarness):
    name = await harness.topic(1)
    first = harness.consumer(name, partition_assignment_strategy="range")
    await settle(1, first)
    second = harness.consumer(name, partition_assignment_strategy="sticky")
    with pytest.raises(BrokerError, match=re.escape("partition.assignment.strategy")) as caught:
        await second.poll(5000)
    assert caught.value.code is ErrorCode.inconsistent_group_protocol
    with pytest.raises(ValueError, match="one or more of range"):
        harness.consumer(name, partition_assignment_strategy="nonsense")


async def test_the_coordinator_is_told_by_the_name_of_the_client(harness: ReaderHarness):
    consumer = harness.consumer()
    assert isinstance(consumer, AsyncConsumer)
    assert re.fullmatch(rf"consumer-{harness.group}-\d+", consumer.config.client_id)
