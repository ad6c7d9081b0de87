"""TxnOffsetCommit: offsets that count with their transaction."""

import pytest
from broker_harness import Client, all_versions, on_loop, unique
from offset_commit_harness import Group
from transaction_harness import TxnProducer

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

ADDS_PARTITION = 5


@pytest.fixture
def group(client):
    return Group(client)


@pytest.fixture
def producer(client):
    made = TxnProducer(client)
    assert made.start().error_code == 0
    return made


def commit(group, producer, topic, offset, version=ADDS_PARTITION, **fields):
    """As clients of that version do it."""
    if version < ADDS_PARTITION:
        assert producer.offsets_of(group.name).error_code == 0
    return group.commit_within(producer, topic, offset, version, **fields)


def end(producer, version=ADDS_PARTITION, *, commit=True):
    assert producer.end(commit=commit, version=5 if version >= ADDS_PARTITION else 3).error_code == 0
    producer.described()


@pytest.mark.parametrize("version", all_versions(Api.TXN_OFFSET_COMMIT))
def test_every_version(client, group, producer, version):
    topic = client.create_topic(partitions=3)
    assert commit(group, producer, topic, {0: 5, 2: 7}, version, metadata="m") == {0: 0, 2: 0}
    assert group.fetched(None) == {}
    end(producer, version)
    assert group.fetched(None) == {(topic, 0): (5, "m", 0), (topic, 2): (7, "m", 0)}


@pytest.mark.parametrize("version", [3, 5])
def test_aborted_ones_never_count(group, producer, topic, version):
    group.commit(topic, 1)
    assert commit(group, producer, topic, 5, version) == 0
    end(producer, version, commit=False)
    assert group.at(topic, require_stable=True) == 1


def test_a_plain_commit_after_it_wins(group, producer, topic):
    assert commit(group, producer, topic, 5) == 0
    assert group.commit(topic, 9) == 0
    end(producer)
    assert group.at(topic) == 9


def test_one_transaction_after_the_other(group, producer, topic):
    for offset in range(1, 4):
        assert commit(group, producer, topic, offset) == 0
        end(producer)
        assert group.at(topic) == offset


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.invalid_txn_state), (4, ErrorCode.transaction_abortable)])
def test_a_partition_that_was_not_added(group, producer, topic, version, code):
    assert group.commit_within(producer, topic, 5, version) == code
    assert group.at(topic, require_stable=True) == -1


@pytest.mark.parametrize("version", [0, 5])
def test_a_commit_that_comes_after_the_end(group, producer, topic, version):
    assert commit(group, producer, topic, 5, version) == 0
    former_epoch = producer.epoch
    end(producer, version)
    producer.epoch = former_epoch
    code = ErrorCode.invalid_producer_epoch if version >= ADDS_PARTITION else ErrorCode.invalid_txn_state
    assert group.commit_within(producer, topic, 6, version) == code
    assert group.at(topic, require_stable=True) == 5


def test_unknown_topics_and_partitions(group, producer, topic):
    missing = ErrorCode.unknown_topic_or_partition
    assert commit(group, producer, unique(), 5) == missing
    assert commit(group, producer, topic, {0: 1, 1: 2}) == {0: 0, 1: missing}


def test_metadata_has_a_limit(group, producer, topic):
    assert commit(group, producer, topic, 5, metadata="x" * 4097) == ErrorCode.offset_metadata_too_large


def test_a_group_needs_a_name(client, producer, topic):
    assert Group(client, "").commit_within(producer, topic, 5) == ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", all_versions(Api.TXN_OFFSET_COMMIT))
def test_other_epochs(group, producer, topic, version):
    producer.epoch += 1
    assert group.commit_within(producer, topic, 5, version) == ErrorCode.invalid_producer_epoch


def test_no_transactional_id(group, producer, topic):
    producer.name = ""
    assert group.commit_within(producer, topic, 5) == ErrorCode.invalid_request


def test_other_ids(group, producer, topic):
    producer.becomes(producer.id + 1_000_000, 0)
    assert group.commit_within(producer, topic, 5) == ErrorCode.invalid_producer_id_mapping


# -- members


def test_members_are_checked(group, producer, topic):
    group.join(topic)
    assert commit(group, producer, topic, 5) == 0
    assert commit(group, producer, topic, 5, member_id="stranger") == ErrorCode.unknown_member_id
    assert commit(group, producer, topic, 5, generation_id=99) == ErrorCode.illegal_generation
    assert commit(group, producer, topic, 5, member_id="", generation_id=-1) == 0


def test_old_clients_do_not_say_who_they_are(group, producer, topic):
    group.join(topic)
    assert commit(group, producer, topic, 5, version=2) == 0


def test_static_members_are_fenced(group, producer, topic):
    group.join(topic, instance_id="i")
    assert commit(group, producer, topic, 5) == 0
    assert commit(group, producer, topic, 5, member_id="former") == ErrorCode.fenced_instance_id


def test_a_member_of_a_group_that_is_not_there(group, producer, topic):
    assert commit(group, producer, topic, 5, member_id="m", generation_id=3) == ErrorCode.illegal_generation


def test_while_partitions_are_being_assigned(group, producer, topic):
    group.join(topic, sync=False)
    assert commit(group, producer, topic, 5) == 0


# -- coordinators


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.coordinator_not_available), (2, ErrorCode.coordinator_load_in_progress)]
)
def test_while_the_coordinator_is_loading(ours, version, code):
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        topic, group = client.create_topic(), Group(client)
        on_loop(broker, load_again, broker.core.coordinators.groups.coordinator, group.name)
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        topics = [{"name": topic, "partitions": partitions}]
        asked = {"group_id": group.name, "transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
        answer = client.ask(Api.TXN_OFFSET_COMMIT, version, topics=topics, **asked)
        assert answer.topics[0].partitions[0].error_code == code
        member = {"generation_id_or_member_epoch": -1, "member_id": ""}
        answer = client.ask(Api.OFFSET_COMMIT, 8, group_id=group.name, topics=topics, **member)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.coordinator_load_in_progress


def load_again(coordinator, group_id):
    """Loading begins, and never ends."""
    index = coordinator.index_of(group_id)
    coordinator.unload(index)
    coordinator.load(NeverEnding(index))


class NeverEnding:
    """A journal that has not been read yet."""

    def __init__(self, index):
        self.index = index
