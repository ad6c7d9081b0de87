"""The admin client's topics, settings and records."""

import pytest
from admin_harness import NOW_MS, OTHER_KAFKA, produce, unique

from headrace import AsyncAdmin, TopicPartition
from headrace.client.admin.types import ConfigChange, ConfigResource, NewTopic
from headrace.client.errors import BrokerError, ErrorCode, InvalidTopic, OffsetOutOfRange, TopicExists, UnknownTopic
from headrace.testing.raw_client import RawClient


async def until_set(admin: AsyncAdmin, topic: str, name: str, value: str) -> None:
    """Apache Kafka's brokers learn of a change a moment later; ours when the answer comes."""
    while (found := (await admin.describe_config("topic", topic))[name].value) != value:
        assert OTHER_KAFKA, found


async def test_topics_are_made_each_with_its_own_outcome(admin: AsyncAdmin) -> None:
    plain, rich = unique(), unique()
    wanted = [plain, NewTopic(rich, 3, 1, {"retention.ms": 60_000, "preallocate": False}), "no name", NewTopic(plain)]
    made = await admin.create_topics(wanted[:3])
    assert set(made.ok) == {plain, rich}
    assert (made.value(rich).num_partitions, made.value(rich).configs["retention.ms"]) == (3, "60000")
    with pytest.raises(InvalidTopic, match="no name"):
        made.all()
    with pytest.raises(TopicExists, match=plain):
        await admin.create_topic(plain)
    assert await admin.create_topic(plain, exist_ok=True) is None


async def test_replicas_may_be_assigned_by_hand(admin: AsyncAdmin) -> None:
    broker_id = (await admin.describe_cluster()).brokers[0].id
    name = unique()
    await admin.create_topic(name, assignments={0: [broker_id], 1: [broker_id]})
    assert [part.replicas for part in (await admin.describe_topic(name)).partitions] == [(broker_id,), (broker_id,)]


async def test_a_check_makes_nothing(admin: AsyncAdmin) -> None:
    name = unique()
    assert set((await admin.create_topics([name], validate_only=True)).ok) == {name}
    assert name not in await admin.list_topics()


async def test_topics_are_described_and_asking_creates_none(admin: AsyncAdmin, topic: str) -> None:
    missing = unique("missing")
    found = await admin.describe_topics([topic, missing])
    described = found.value(topic)
    assert [partition.partition for partition in described.partitions] == [0, 1, 2]
    assert described.id == (await admin.list_topics())[topic].id
    leader = described.partitions[0].leader_id
    assert described.partitions[0].replicas == described.partitions[0].in_sync_replicas == (leader,)
    every = (await admin.describe_topics()).value(topic)
    assert (every.id, [each.replicas for each in every.partitions]) == (described.id, [(leader,)] * 3)
    with pytest.raises(UnknownTopic, match=f"no topic '{missing}'"):
        found.value(missing)
    offset = await admin.list_offsets({TopicPartition(missing, 0): "latest"})
    assert isinstance(offset[TopicPartition(missing, 0)], UnknownTopic)
    assert missing not in await admin.list_topics()


async def test_topics_are_deleted_by_name_and_by_id(admin: AsyncAdmin) -> None:
    by_name, by_id, missing = unique(), unique(), unique("missing")
    made = (await admin.create_topics([by_name, by_id])).all()
    topic_id = made[by_id].id
    assert topic_id is not None
    gone = await admin.delete_topics([by_name, topic_id])
    assert set(gone.ok) == {by_name, topic_id}
    assert not {by_name, by_id} & set(await admin.list_topics())
    with pytest.raises(UnknownTopic, match=missing):
        await admin.delete_topic(missing)


async def test_internal_topics_are_listed_on_demand(admin: AsyncAdmin, topic: str) -> None:
    await admin.alter_group_offsets(unique("group"), {TopicPartition(topic, 0): 0})
    assert "__consumer_offsets" not in await admin.list_topics()
    assert (await admin.list_topics(include_internal=True))["__consumer_offsets"].is_internal


async def test_partitions_are_added_never_taken(admin: AsyncAdmin, topic: str) -> None:
    missing = unique("missing")
    results = await admin.create_partitions({topic: 5, missing: 2})
    assert (set(results.ok), set(results.errors)) == ({topic}, {missing})
    with pytest.raises(BrokerError, match="invalid_partitions"):
        (await admin.create_partitions({topic: 2})).value(topic)


async def test_settings_are_described_with_their_layers(admin: AsyncAdmin, topic: str) -> None:
    of_topic = ConfigResource("topic", topic)
    broker = ConfigResource("broker", str((await admin.describe_cluster()).brokers[0].id))
    await admin.alter_config("topic", topic, {"retention.ms": 60_000})
    await until_set(admin, topic, "retention.ms", "60000")
    found = (await admin.describe_configs([of_topic, broker], include_synonyms=True)).all()
    retention = found[of_topic]["retention.ms"]
    assert (retention.value, retention.source, retention.type) == ("60000", "DYNAMIC_TOPIC_CONFIG", "LONG")
    assert retention.synonyms[0].value == "60000"
    assert found[of_topic]["segment.bytes"].is_default
    assert found[broker]["log.dirs"].is_read_only
    only = (await admin.describe_configs([of_topic], names=["retention.ms"], include_documentation=True)).all()
    assert list(only[of_topic]) == ["retention.ms"]
    assert only[of_topic]["retention.ms"].documentation


async def test_single_settings_change_and_the_others_stay(admin: AsyncAdmin, topic: str) -> None:
    await admin.alter_config("topic", topic, {"retention.ms": 60_000, "segment.ms": 20_000})
    await until_set(admin, topic, "segment.ms", "20000")
    await admin.alter_config("topic", topic, [ConfigChange("cleanup.policy", "compact", "append")])
    await until_set(admin, topic, "cleanup.policy", "delete,compact")
    await admin.alter_config("topic", topic, {"segment.ms": None})
    await until_set(admin, topic, "segment.ms", "604800000")
    assert (await admin.describe_config("topic", topic))["retention.ms"].value == "60000"
    with pytest.raises(BrokerError, match=r"retention\.ms.*invalid_config"):
        await admin.alter_config("topic", topic, {"retention.ms": "many"})


async def test_a_broker_that_is_not_there_fails_alone(admin: AsyncAdmin, topic: str) -> None:
    there, missing = ConfigResource("topic", topic), ConfigResource("broker", "4711")
    found = await admin.describe_configs([there, missing])
    assert list(found.ok) == [there]
    assert "4711" in str(found.errors[missing])


async def test_offsets_by_name_and_by_time(admin: AsyncAdmin, topic: str, client: RawClient) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(client, first, 10)

    async def offsets(spec: object) -> list[int]:
        found = await admin.list_offsets({first: spec, second: spec})  # type: ignore[dict-item]
        return [found.value(first).offset, found.value(second).offset]

    assert await offsets("earliest") == [0, 0]
    assert await offsets("latest") == [10, 0]
    assert await offsets("max_timestamp") == [9, -1]
    assert await offsets(NOW_MS + 4) == [4, -1]
    assert (await admin.list_offsets({first: "max_timestamp"})).value(first).timestamp_ms == NOW_MS + 9


async def test_records_are_deleted_up_to_an_offset(admin: AsyncAdmin, topic: str, client: RawClient) -> None:
    first, second, missing = (TopicPartition(topic, index) for index in (0, 1, 7))
    produce(client, first, 10)
    results = await admin.delete_records({first: 4, second: 5, missing: 0})
    assert results.ok == {first: 4}
    assert isinstance(results[second], OffsetOutOfRange)
    assert isinstance(results[missing], UnknownTopic)
    assert (await admin.delete_records({first: -1})).all() == {first: 10}


async def test_a_code_that_no_class_has_is_told_by_name(admin: AsyncAdmin) -> None:
    with pytest.raises(BrokerError) as raised:
        await admin.create_topic(unique(), 0)
    assert raised.value.code is ErrorCode.invalid_partitions
