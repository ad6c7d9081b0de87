"""Consumers in groups of the new protocol (KIP-848)."""

import asyncio
import re

import pytest
from reader_harness import ReaderHarness, at, meanwhile, poll_until, read, settle, unique, values
from test_membership import Log

from headrace import OffsetAndMetadata, TopicPartition
from headrace.client.consumer.async_consumer import AsyncConsumer
from headrace.client.errors import BrokerError, ErrorCode, HeadraceError


def member(harness: ReaderHarness, *topics: str, **options: object) -> AsyncConsumer:
    return harness.consumer(*topics, group_protocol="consumer", **options)


async def test_a_consumer_alone_gets_everything_and_commits_when_it_is_closed(harness: ReaderHarness):
    name = await harness.topic(3)
    for index in range(3):
        await harness.fill(name, range(5), partition=index)
    consumer, log = member(harness), Log()
    consumer.subscribe([name], **log.callbacks())
    assert len(await read(consumer, 15)) == 15
    assert log.events == [("assigned", [0, 1, 2])]
    assert consumer.group_metadata().generation_id > 0
    await consumer.close()
    assert log.events[1:] == [("revoked", [0, 1, 2])]
    heir = member(harness)
    assert set((await heir.committed(*at(name, 0, 1, 2))).values()) == {OffsetAndMetadata(5, leader_epoch=0)}


@pytest.mark.parametrize("assignor", ["uniform", "range"])
async def test_three_share_and_take_over_from_who_leaves(harness: ReaderHarness, assignor: str):
    name = await harness.topic(6)
    consumers = [member(harness, name, group_remote_assignor=assignor)]
    await settle(6, *consumers)
    for _ in range(2):
        consumers.append(member(harness, name, group_remote_assignor=assignor))
        await settle(6, *consumers)
    assert [len(consumer.assignment()) for consumer in consumers] == [2, 2, 2]
    await meanwhile(consumers[0].close(), *consumers[1:])
    await settle(6, *consumers[1:])
    assert [len(consumer.assignment()) for consumer in consumers[1:]] == [3, 3]


async def test_only_what_moves_is_revoked(harness: ReaderHarness):
    name = await harness.topic(4)
    first, log = member(harness), Log()
    first.subscribe([name], **log.callbacks())
    await settle(4, first)
    second = member(harness, name)
    await settle(4, first, second)
    assert [(kind, len(partitions)) for kind, partitions in log.events if partitions] == [
        ("assigned", 4),
        ("revoked", 2),
    ]


async def test_records_are_read_once_across_rebalances(harness: ReaderHarness):
    name = await harness.topic(4)
    for index in range(4):
        await harness.fill(name, range(index * 100, index * 100 + 100), partition=index)
    first, second = (member(harness, name, max_poll_records=7) for _ in range(2))
    seen = values(await read(first, 30))
    seen += values(await poll_until(lambda: second.assignment(), first, second))
    while len(seen) < 400:
        for found in await asyncio.gather(first.poll(20), second.poll(20)):
            seen += values(found)
    assert sorted(map(int, seen)) == list(range(400))


async def test_a_static_member_comes_back_to_what_it_had(harness: ReaderHarness):
    name = await harness.topic(4)
    other, log = member(harness), Log()
    other.subscribe([name], **log.callbacks())
    static = member(harness, name, group_instance_id="one")
    await settle(4, other, static)
    share, before = static.assignment(), list(log.events)
    await static.close()
    again = member(harness, name, group_instance_id="one")
    await settle(4, other, again)
    assert again.assignment() == share
    assert log.events == before


async def test_two_with_one_instance_id_do_not_go_together(harness: ReaderHarness):
    name = await harness.topic(1)
    await settle(1, member(harness, name, group_instance_id="one"))
    second = member(harness, name, group_instance_id="one")
    with pytest.raises(BrokerError, match=re.escape("group.instance.id")) as caught:
        await second.poll(5000)
    assert caught.value.code is ErrorCode.unreleased_instance_id


@pytest.mark.parametrize("is_compiled", [False, True])
async def test_a_pattern(harness: ReaderHarness, is_compiled: bool):
    prefix = unique("many")
    await harness.create(f"{prefix}-a", 2)
    consumer = member(harness, metadata_max_age_ms=50)
    pattern = rf"{prefix}-."
    consumer.subscribe(pattern=re.compile(pattern) if is_compiled else pattern)
    await settle(2, consumer)
    if is_compiled:  # a broker looks by itself only when something makes it to, or after minutes
        await harness.create(f"{prefix}-b", 1)
        await settle(3, consumer)
    other = await harness.topic(1)
    consumer.subscribe([other])
    await poll_until(lambda: consumer.assignment() == set(at(other, 0)), consumer)
    assert consumer.subscription() == {other}


async def test_subscribing_to_something_else(harness: ReaderHarness):
    one, other = await harness.topic(1), await harness.topic(2)
    consumer = member(harness, one)
    await settle(1, consumer)
    consumer.subscribe([other])
    await settle(2, consumer)
    await consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.subscribe([one])
    await settle(1, consumer)


async def test_new_partitions_are_given_out(harness: ReaderHarness):
    name = await harness.topic(1)
    consumer = member(harness, name)
    await settle(1, consumer)
    await harness.widen(name, 3)
    await settle(3, consumer)
    assert consumer.assignment() == set(at(name, 0, 1, 2))


async def test_commits_while_the_group_changes(harness: ReaderHarness):
    name = await harness.topic(2)
    await harness.fill(name, range(10))
    first = member(harness, name, enable_auto_commit=False)
    await read(first, 4)
    second = member(harness, name, enable_auto_commit=False)
    await settle(2, first, second)
    for consumer in (first, second):
        await consumer.commit(dict.fromkeys(consumer.assignment(), 3))
    found = await first.committed(*at(name, 0, 1))
    assert set(found.values()) == {OffsetAndMetadata(3)}


async def test_who_does_not_poll_is_out_and_joins_again(harness: ReaderHarness):
    name = await harness.topic(2)
    slow, log = member(harness, max_poll_interval_ms=300), Log()
    slow.subscribe([name], **log.callbacks())
    await settle(2, slow)
    quick = member(harness, name)
    await poll_until(lambda: len(quick.assignment()) == 2, quick)
    with pytest.raises(HeadraceError):
        await slow.commit({TopicPartition(name, 0): 1})
    await settle(2, slow, quick)
    assert ("lost", [0, 1]) in log.events


async def test_an_assignor_that_the_broker_does_not_have(harness: ReaderHarness):
    name = await harness.topic(1)
    consumer = member(harness, name, group_remote_assignor="mine")
    with pytest.raises(BrokerError, match=re.escape("group.remote.assignor")) as caught:
        await consumer.poll(5000)
    assert caught.value.code is ErrorCode.unsupported_assignor
