"""The admin client's groups and transactions."""

import pytest
from admin_harness import begin_transaction, join, unique

from headrace import AsyncAdmin, OffsetAndMetadata, TopicPartition
from headrace.client.admin.types import ProducerIdAndEpoch
from headrace.client.errors import BrokerError, ErrorCode, GroupNotEmpty, MemberFenced, UnknownGroup
from headrace.protocol.api import Api
from headrace.testing.raw_client import RawClient


@pytest.fixture
async def group(admin: AsyncAdmin, topic: str) -> str:
    """A group that has committed 5 in the first partition, and has no members."""
    name = unique("group")
    (await admin.alter_group_offsets(name, {TopicPartition(topic, 0): OffsetAndMetadata(5, "mine")})).all()
    return name


async def test_offsets_of_a_group_are_set_read_and_taken_back(admin: AsyncAdmin, topic: str, group: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert await admin.list_group_offsets(group) == {first: OffsetAndMetadata(5, "mine")}
    (await admin.alter_group_offsets(group, {first: 6, second: 7})).all()
    assert await admin.list_group_offsets(group, [second], require_stable=True) == {second: OffsetAndMetadata(7)}
    assert await admin.list_group_offsets(group, [TopicPartition(topic, 2)]) == {}
    assert (await admin.delete_group_offsets(group, [first])).all() == {first: None}
    assert await admin.list_group_offsets(group) == {second: OffsetAndMetadata(7)}
    assert await admin.list_group_offsets(unique("nobody")) == {}


async def test_groups_are_listed_by_state_and_type(admin: AsyncAdmin, group: str) -> None:
    (listed,) = (found for found in await admin.list_groups() if found.group_id == group)
    assert (listed.state, listed.type) == ("Empty", "Classic")
    assert group in {found.group_id for found in await admin.list_groups(states=["Empty"], types=["Classic"])}
    assert group not in {found.group_id for found in await admin.list_groups(states=["Stable"])}
    assert group not in {found.group_id for found in await admin.list_groups(types=["Consumer"])}


async def test_a_classic_group_is_described_with_its_members(
    admin: AsyncAdmin, topic: str, group: str, client: RawClient
) -> None:
    member_id = join(client, group, topic, instance_id="one")
    described = await admin.describe_group(group)
    assert (described.type, described.state, described.assignor) == ("Classic", "Stable", "range")
    assert described.coordinator in (await admin.describe_cluster()).brokers
    (member,) = described.members
    assert (member.member_id, member.instance_id, member.client_id) == (member_id, "one", "raw-client")
    assert member.subscribed_topics == (topic,)
    assert member.assignment == tuple(TopicPartition(topic, index) for index in range(3))


async def test_a_group_of_the_consumer_protocol_is_described_with_its_epochs(
    admin: AsyncAdmin, topic: str, client: RawClient
) -> None:
    name, member_id = unique("group"), "6f1c4d4e-0000-4000-8000-0123456789ab"
    nothing = ("instance_id", "rack_id", "server_assignor", "subscribed_topic_names", "subscribed_topic_regex")
    unchanged = {**dict.fromkeys((*nothing, "topic_partitions")), "rebalance_timeout": -1}
    new = {"rebalance_timeout": 30_000, "server_assignor": "uniform", "subscribed_topic_names": [topic]}

    def beat(epoch: int, **fields: object) -> int:
        told = {"group_id": name, "member_id": member_id, "member_epoch": epoch, **unchanged, **fields}
        answer = client.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, **told)
        assert answer.error_code == 0, answer
        return int(answer.member_epoch)

    await admin.describe_groups([name])  # the coordinator is there from now on
    epoch = beat(0, **new, topic_partitions=[])
    assert name in {found.group_id for found in await admin.list_groups(types=["Consumer"])}
    described = await admin.describe_group(name)
    while not described.members or not described.members[0].target_assignment:
        epoch = beat(epoch)  # Apache Kafka takes a while to see a member, and a topic
        described = await admin.describe_group(name)
    (member,) = described.members
    assert (described.type, described.assignor) == ("Consumer", "uniform")
    assert described.group_epoch is not None
    assert (member.member_id, member.subscribed_topics) == (member_id, (topic,))
    assert member.target_assignment == tuple(TopicPartition(topic, index) for index in range(3))


async def test_a_group_that_is_not_there(admin: AsyncAdmin) -> None:
    name = unique("nobody")
    with pytest.raises(UnknownGroup, match=name):
        await admin.describe_group(name)
    with pytest.raises(UnknownGroup, match=name):
        await admin.delete_group(name)


async def test_a_group_with_members_is_neither_deleted_nor_changed(
    admin: AsyncAdmin, topic: str, group: str, client: RawClient
) -> None:
    join(client, group, topic)
    with pytest.raises(GroupNotEmpty, match=group):
        await admin.delete_group(group)
    at = TopicPartition(topic, 0)
    with pytest.raises(MemberFenced):
        (await admin.alter_group_offsets(group, {at: 0})).value(at)
    with pytest.raises(BrokerError) as raised:
        (await admin.delete_group_offsets(group, [at])).value(at)
    assert raised.value.code is ErrorCode.group_subscribed_to_topic


async def test_members_are_put_out_by_id_by_instance_or_all(
    admin: AsyncAdmin, topic: str, group: str, client: RawClient
) -> None:
    member_id = join(client, group, topic)
    results = await admin.remove_members(group, [member_id, "stranger"], reason="a test")
    assert results.ok == {member_id: None}
    assert isinstance(results["stranger"], MemberFenced)
    join(client, group, topic, instance_id="one")
    assert (await admin.remove_members(group, ["one"])).all() == {"one": None}
    last = join(client, group, topic)
    assert (await admin.remove_members(group)).all() == {last: None}
    await admin.delete_group(group)
    assert group not in {found.group_id for found in await admin.list_groups()}


async def test_a_transaction_is_listed_described_and_its_producer_fenced(
    admin: AsyncAdmin, topic: str, client: RawClient
) -> None:
    name, at = unique("id"), TopicPartition(topic, 0)
    producer_id, epoch = begin_transaction(client, name, at)
    (listed,) = (found for found in await admin.list_transactions(states=["Ongoing"]) if found.transactional_id == name)
    assert listed.producer_id == producer_id
    assert [found.transactional_id for found in await admin.list_transactions(pattern=f"{name}.*")] == [name]
    described = await admin.describe_transaction(name)
    assert (described.state, described.producer_id, described.producer_epoch) == ("Ongoing", producer_id, epoch)
    assert (described.timeout_ms, described.partitions) == (30_000, (at,))
    assert described.start_time_ms is not None
    fenced = (await admin.fence_producers([name])).value(name)
    assert isinstance(fenced, ProducerIdAndEpoch)
    assert fenced > (producer_id, epoch)
    assert (await admin.describe_transaction(name)).start_time_ms is None


async def test_a_hanging_transaction_is_found_and_aborted(admin: AsyncAdmin, topic: str, client: RawClient) -> None:
    at = TopicPartition(topic, 0)
    producer_id, epoch = begin_transaction(client, unique("id"), at)
    (producer,) = (await admin.describe_producers([at])).value(at)
    assert (producer.producer_id, producer.producer_epoch) == (producer_id, epoch)
    assert (producer.last_sequence, producer.current_txn_start_offset) == (0, 0)
    waiting = await admin.list_offsets({at: "latest"}, isolation="read_committed")
    assert waiting.value(at).offset == 0
    await admin.abort_transaction(at, producer_id, epoch, producer.coordinator_epoch)
    after = await admin.list_offsets({at: "latest"}, isolation="read_committed")
    assert after.value(at).offset == 2
    (producer,) = (await admin.describe_producers([at])).value(at)
    assert producer.current_txn_start_offset == -1


async def test_an_unknown_transactional_id_fails_alone(admin: AsyncAdmin) -> None:
    name = unique("nobody")
    with pytest.raises(BrokerError, match=name) as raised:
        await admin.describe_transaction(name)
    assert raised.value.code is ErrorCode.transactional_id_not_found
