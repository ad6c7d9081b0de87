"""Consumers in groups of the new protocol (KIP-848)."""

import asyncio
import re

import pytest
from readerbed import Bed, at, meanwhile, poll_until, read, settle, unique, values
from test_membership import Log

from headrace import OffsetAndMetadata, TopicPartition
from headrace.client.consumer import AsyncConsumer
from headrace.client.errors import BrokerError, ErrorCode, HeadraceError


def member(bed: Bed, *topics: str, **options: object) -> AsyncConsumer:
    return bed.consumer(*topics, group_protocol="consumer", **options)


async def test_a_consumer_alone_gets_everything_and_commits_when_it_is_closed(bed: Bed):
    name = await bed.topic(3)
    for index in range(3):
        await bed.fill(name, range(5), partition=index)
    consumer, log = member(bed), Log()
    consumer.subscribe([name], **log.callbacks())
    assert len(await read(consumer, 15)) == 15
    assert log.events == [("assigned", [0, 1, 2])]
    assert consumer.group_metadata().generation_id > 0
    await consumer.close()
    assert log.events[1:] == [("revoked", [0, 1, 2])]
    heir = member(bed)
    assert set((await heir.committed(*at(name, 0, 1, 2))).values()) == {OffsetAndMetadata(5, leader_epoch=0)}


@pytest.mark.parametrize("assignor", ["uniform", "range"])
async def test_three_share_and_take_over_from_who_leaves(bed: Bed, assignor: str):
    name = await bed.topic(6)
    consumers = [member(bed, name, group_remote_assignor=assignor)]
    await settle(6, *consumers)
    for _ in range(2):
        consumers.append(member(bed, name, group_remote_assignor=assignor))
        await settle(6, *consumers)
    assert [len(consumer.assignment()) for consumer in consumers] == [2, 2, 2]
    await meanwhile(consumers[0].close(), *consumers[1:])
    await settle(6, *consumers[1:])
    assert [len(consumer.assignment()) for consumer in consumers[1:]] == [3, 3]


async def test_only_what_moves_is_revoked(bed: Bed):
    name = await bed.topic(4)
    first, log = member(bed), Log()
    first.subscribe([name], **log.callbacks())
    await settle(4, first)
    second = member(bed, name)
    await settle(4, first, second)
    assert [(kind, len(partitions)) for kind, partitions in log.events if partitions] == [
        ("assigned", 4),
        ("revoked", 2),
    ]


async def test_records_are_read_once_across_rebalances(bed: Bed):
    name = await bed.topic(4)
    for index in range(4):
        await bed.fill(name, range(index * 100, index * 100 + 100), partition=index)
    first, second = (member(bed, name, max_poll_records=7) for _ in range(2))
    seen = values(await read(first, 30))
    seen += values(await poll_until(lambda: second.assignment(), first, second))
    while len(seen) < 400:
        for found in await asyncio.gather(first.poll(20), second.poll(20)):
            seen += values(found)
    assert sorted(map(int, seen)) == list(range(400))


async def test_a_static_member_comes_back_to_what_it_had(bed: Bed):
    name = await bed.topic(4)
    other, log = member(bed), Log()
    other.subscribe([name], **log.callbacks())
    static = member(bed, name, group_instance_id="one")
    await settle(4, other, static)
    share, before = static.assignment(), list(log.events)
    await static.close()
    again = member(bed, name, group_instance_id="one")
    await settle(4, other, again)
    assert again.assignment() == share
    assert log.events == before


async def test_two_with_one_instance_id_do_not_go_together(bed: Bed):
    name = await bed.topic(1)
    await settle(1, member(bed, name, group_instance_id="one"))
    second = member(bed, name, group_instance_id="one")
    with pytest.raises(BrokerError, match=re.escape("group.instance.id")) as caught:
        await second.poll(5000)
    assert caught.value.code is ErrorCode.unreleased_instance_id


@pytest.mark.parametrize("is_compiled", [False, True])
async def test_a_pattern(bed: Bed, is_compiled: bool):
    prefix = unique("many")
    await bed.create(f"{prefix}-a", 2)
    consumer = member(bed, metadata_max_age_ms=50)
    pattern = rf"{prefix}-."
    consumer.subscribe(pattern=re.compile(pattern) if is_compiled else pattern)
    await settle(2, consumer)
    if is_compiled:  # a broker looks by itself only when something makes it to, or after minutes
        await bed.create(f"{prefix}-b", 1)
        await settle(3, consumer)
    other = await bed.topic(1)
    consumer.subscribe([other])
    await poll_until(lambda: consumer.assignment() == set(at(other, 0)), consumer)
    assert consumer.subscription() == {other}


async def test_subscribing_to_something_else(bed: Bed):
    one, other = await bed.topic(1), await bed.topic(2)
    consumer = member(bed, one)
    await settle(1, consumer)
    consumer.subscribe([other])
    await settle(2, consumer)
    await consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.subscribe([one])
    await settle(1, consumer)


async def test_new_partitions_are_given_out(bed: Bed):
    name = await bed.topic(1)
    consumer = member(bed, name)
    await settle(1, consumer)
    await bed.widen(name, 3)
    await settle(3, consumer)
    assert consumer.assignment() == set(at(name, 0, 1, 2))


async def test_commits_while_the_group_changes(bed: Bed):
    name = await bed.topic(2)
    await bed.fill(name, range(10))
    first = member(bed, name, enable_auto_commit=False)
    await read(first, 4)
    second = member(bed, name, enable_auto_commit=False)
    await settle(2, first, second)
    for consumer in (first, second):
        await consumer.commit(dict.fromkeys(consumer.assignment(), 3))
    found = await first.committed(*at(name, 0, 1))
    assert set(found.values()) == {OffsetAndMetadata(3)}


async def test_who_does_not_poll_is_out_and_joins_again(bed: Bed):
    name = await bed.topic(2)
    slow, log = member(bed, max_poll_interval_ms=300), Log()
    slow.subscribe([name], **log.callbacks())
    await settle(2, slow)
    quick = member(bed, name)
    await poll_until(lambda: len(quick.assignment()) == 2, quick)
    with pytest.raises(HeadraceError):
        await slow.commit({TopicPartition(name, 0): 1})
    await settle(2, slow, quick)
    assert ("lost", [0, 1]) in log.events


async def test_an_assignor_that_the_broker_does_not_have(bed: Bed):
    name = await bed.topic(1)
    consumer = member(bed, name, group_remote_assignor="mine")
    with pytest.raises(BrokerError, match=re.escape("group.remote.assignor")) as caught:
        await consumer.poll(5000)
    assert caught.value.code is ErrorCode.unsupported_assignor
