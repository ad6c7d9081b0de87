from uuid import uuid4

import pytest

from headrace.broker.metadata_cache import MetadataCache, PartitionInfo, TopicInfo
from headrace.protocol.errors import UnknownTopicId, UnknownTopicOrPartition


def info(name, partitions=1):
    return TopicInfo(name, uuid4(), (PartitionInfo(0, 0, (0,), (0,)),) * partitions)


@pytest.fixture
def cache():
    return MetadataCache("cluster")


def test_a_topic_is_found_by_name_and_by_id(cache):
    topic = info("t")
    cache.put(topic)
    assert cache.get("t") is cache.named("t") is topic
    assert cache.get_by_id(topic.topic_id) is cache.identified(topic.topic_id) is topic
    assert len(cache) == 1


def test_topics_come_by_name(cache):
    for name in ("b", "c", "a"):
        cache.put(info(name))
    assert [topic.name for topic in cache] == ["a", "b", "c"]


def test_a_topic_that_changes_is_replaced_whole(cache):
    before = info("t")
    before.encoded["key"] = b"bytes"
    cache.put(before)
    after = TopicInfo("t", before.topic_id, before.partitions * 2)
    cache.put(after)
    assert cache.named("t") is after
    assert after.encoded == {}
    assert len(before.partitions) == 1


def test_what_is_not_there(cache):
    assert cache.get("t") is None
    assert cache.get_by_id(uuid4()) is None
    with pytest.raises(UnknownTopicOrPartition):
        cache.named("t")
    for missing in (uuid4(), None):
        with pytest.raises(UnknownTopicId):
            cache.identified(missing)


def test_a_removed_topic_is_gone_by_name_and_id(cache):
    topic = info("t")
    cache.put(topic)
    cache.remove("t")
    assert cache.get("t") is None
    assert cache.get_by_id(topic.topic_id) is None


def test_a_topic_may_be_removed_while_all_are_walked(cache):
    for name in "abc":
        cache.put(info(name))
    for topic in cache:
        cache.remove(topic.name)
    assert len(cache) == 0


@pytest.mark.parametrize(("name", "is_internal"), [("__consumer_offsets", True), ("__mine", False)])
def test_internal_topics(name, is_internal):
    assert info(name).is_internal is is_internal
