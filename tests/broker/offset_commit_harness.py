"""Short words for what tests say about committed offsets, in any version of the requests."""

from broker_harness import unique
from transaction_harness import patiently

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

RANGE_SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00%c%b\xff\xff\xff\xff"


class Group:
    """A group, and the member that commits for it, or none (the default)."""

    def __init__(self, client, name=None):
        self.client = client
        self.name = unique("group") if name is None else name
        self.member = {}
        find = {"key": self.name or "nameless", "key_type": 0}
        patiently(lambda: client.ask(Api.FIND_COORDINATOR, 3, **find))

    def join(self, topic=None, *, instance_id=None, protocol_type="consumer", protocols=("range",), sync=True):
        """Becomes the only member."""
        name = (topic or "none").encode()
        metadata = RANGE_SUBSCRIPTION % (len(name), name)
        asked = {
            "group_id": self.name,
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "member_id": "",
            "group_instance_id": instance_id,
            "protocol_type": protocol_type,
            "protocols": [{"name": each, "metadata": metadata} for each in protocols],
        }
        answer = patiently(lambda: self.client.ask(Api.JOIN_GROUP, 5 if instance_id else 3, **asked))
        assert answer.error_code == 0, answer
        self.member = {
            "member_id": answer.member_id,
            "generation_id": answer.generation_id,
            "group_instance_id": instance_id,
        }
        if sync:
            asked = {**self.member, "group_id": self.name}
            assignments = [{"member_id": answer.member_id, "assignment": b""}]
            assert self.client.ask(Api.SYNC_GROUP, 3, assignments=assignments, **asked).error_code == 0
        return self

    def identity(self, **fields):
        given = {"member_id": "", "generation_id": -1, "group_instance_id": None, **self.member, **fields}
        return {**given, "generation_id_or_member_epoch": given["generation_id"]}

    def commit(self, topic, offsets, version=9, *, epoch=-1, metadata="", topic_id=None, retention_ms=-1, **identity):
        """Offsets are a dict by partition, or one number for partition 0; the codes by partition."""
        offsets = offsets if isinstance(offsets, dict) else {0: offsets}
        partitions = partition_commits(offsets, epoch, metadata)
        asked = {
            "group_id": self.name,
            **self.identity(**identity),
            "retention_time": retention_ms,
            "topics": [{"name": topic, "topic_id": topic_id, "partitions": partitions}],
        }
        return commit_codes(patiently(lambda: self.client.ask(Api.OFFSET_COMMIT, version, **asked), any_code))

    def commit_within(self, producer, topic, offsets, version=5, *, metadata="", **identity):
        offsets = offsets if isinstance(offsets, dict) else {0: offsets}
        asked = {
            "group_id": self.name,
            "transactional_id": producer.name,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            **self.identity(**identity),
            "topics": [{"name": topic, "partitions": partition_commits(offsets, -1, metadata)}],
        }
        return commit_codes(patiently(lambda: self.client.ask(Api.TXN_OFFSET_COMMIT, version, **asked), any_code))

    def ask(self, topics, version=8, *, require_stable=False, **identity):
        """OffsetFetch of this group alone; topics are a dict of partitions, or None for all. The group's answer."""
        named = None
        if topics is not None:
            named = [{"name": name, "topic_id": name, "partition_indexes": topics[name]} for name in topics]
        group = {"group_id": self.name, "topics": named, **identity}
        asked = {**group, "groups": [group], "require_stable": require_stable}
        return patiently(lambda: only_group(self.client.ask(Api.OFFSET_FETCH, version, **asked)), fetch_code)

    def fetched(self, topics, version=8, **fields):
        """(offset, metadata, code) by topic and partition."""
        answer = self.ask(topics, version, **fields)
        assert fetch_code(answer) == 0, answer
        return {
            (getattr(topic, "name", None) or topic.topic_id, partition.partition_index): (
                partition.committed_offset,
                partition.metadata,
                partition.error_code,
            )
            for topic in answer.topics
            for partition in topic.partitions
        }

    def at(self, topic, partition=0, **fields):
        (offset, _, code) = self.fetched({topic: [partition]}, **fields)[topic, partition]
        return code or offset

    def delete(self, topic, *partitions):
        """The group's code, or those of the partitions."""
        wanted = [{"partition_index": index} for index in partitions]
        asked = {"group_id": self.name, "topics": [{"name": topic, "partitions": wanted}]}
        answer = patiently(lambda: self.client.ask(Api.OFFSET_DELETE, 0, **asked))
        if answer.error_code:
            assert answer.topics == ()
            return answer.error_code
        return {each.partition_index: each.error_code for topic in answer.topics for each in topic.partitions}


def partition_commits(offsets, epoch, metadata):
    return [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "committed_metadata": metadata,
        }
        for index, offset in offsets.items()
    ]


def commit_codes(answer):
    codes = {each.partition_index: each.error_code for topic in answer.topics for each in topic.partitions}
    return codes[0] if list(codes) == [0] else codes


def any_code(answer):
    return next((each.error_code for topic in answer.topics for each in topic.partitions), ErrorCode.none)


def only_group(answer):
    return answer.groups[0] if hasattr(answer, "groups") else answer


def fetch_code(answer):
    return getattr(answer, "error_code", ErrorCode.none) or any_partition_code(answer)


def any_partition_code(answer):
    """Version 1 has no other place."""
    codes = {each.error_code for topic in answer.topics for each in topic.partitions}
    return next(iter(codes & {ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress}), ErrorCode.none)
