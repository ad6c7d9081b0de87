"""Coordinators whose partitions have followers: when they answer, and what a change of leader leaves."""

import pytest
from broker_harness import Client, await_on_loop, on_loop
from group_member_harness import Member
from held_partitions_harness import HeldPartitionsHarness
from offset_commit_harness import Group
from transaction_harness import TxnProducer

from headrace import Broker
from headrace.broker.coordinators.internal_topics import GROUPS, TRANSACTIONS
from headrace.broker.metadata_cache import TopicInfo
from headrace.protocol.api import Api
from headrace.protocol.errors import CoordinatorNotAvailable, ErrorCode, NotCoordinator
from headrace.transactions.coordinator import ProducerIdentity

SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.commit.timeout.ms": 300,
}


@pytest.fixture
def broker():
    with Broker(config=SETTINGS) as made:
        yield made


@pytest.fixture
def client(broker):
    with Client(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def topic(client):
    return client.create_topic()


@pytest.fixture
def harness(broker, topic):
    return HeldPartitionsHarness(broker)


class Waits:
    """A connection of its own, whose request is not answered yet."""

    def __init__(self, broker, api, version, **fields):
        self.client = Client(broker.bootstrap_servers)
        self.client.send(api, version, **fields)
        # A request behind it on another connection is answered: so it was looked at, and waits.
        with Client(broker.bootstrap_servers) as other:
            other.ask(Api.API_VERSIONS, 3, client_software_name="x", client_software_version="1")
        self.client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            self.client.socket.recv(1)
        self.client.socket.settimeout(10)

    def answer(self):
        with self.client:
            return self.client.receive()


def commit_request(group, topic, offset, **fields):
    partitions = [
        {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    ]
    return {
        "group_id": group.name,
        "member_id": "",
        "generation_id_or_member_epoch": -1,
        "generation_id": -1,
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": partitions}],
        **fields,
    }


def code_of(answer):
    return answer.topics[0].partitions[0].error_code


def fetch_request(group, topic):
    asked = {"group_id": group.name, "member_id": None, "member_epoch": -1}
    return {
        "groups": [{**asked, "topics": [{"name": topic, "partition_indexes": [0]}]}],
        "require_stable": False,
    }


def offset_of(answer):
    return answer.groups[0].topics[0].partitions[0].committed_offset


# -- groups


def test_a_commit_is_answered_when_its_followers_have_it(broker, harness, client, topic):
    group = Group(client)
    harness.hold()
    waits = Waits(broker, Api.OFFSET_COMMIT, 9, **commit_request(group, topic, 7))
    harness.release()
    assert code_of(waits.answer()) == 0
    assert group.commit(topic, 8) == 0


def test_a_commit_that_followers_do_not_get_in_time(harness, client, topic):
    group = Group(client)
    harness.hold()
    answer = client.ask(Api.OFFSET_COMMIT, 9, **commit_request(group, topic, 7))
    assert code_of(answer) == ErrorCode.coordinator_not_available
    harness.release()  # it was in the log, and so it counts after all
    assert offset_of(client.ask(Api.OFFSET_FETCH, 9, **fetch_request(group, topic))) == 7


def test_a_commit_with_too_few_replicas_is_refused_and_forgotten(harness, client, topic):
    group = Group(client)
    harness.hold(has_too_few=True)
    answer = client.ask(Api.OFFSET_COMMIT, 9, **commit_request(group, topic, 7))
    assert code_of(answer) == ErrorCode.coordinator_not_available
    assert offset_of(client.ask(Api.OFFSET_FETCH, 9, **fetch_request(group, topic))) == -1


def test_nobody_reads_an_offset_that_is_not_committed(broker, harness, client, topic):
    group = Group(client)
    assert group.commit(topic, 6) == 0
    harness.hold()
    commits = Waits(broker, Api.OFFSET_COMMIT, 9, **commit_request(group, topic, 7))
    reads = Waits(broker, Api.OFFSET_FETCH, 9, **fetch_request(group, topic))
    harness.lose()
    assert code_of(commits.answer()) == ErrorCode.not_coordinator
    assert reads.answer().groups[0].error_code == ErrorCode.not_coordinator
    harness.regain()
    assert offset_of(client.ask(Api.OFFSET_FETCH, 9, **fetch_request(group, topic))) == 6


def test_others_are_not_coordinated_here(harness, client, topic):
    group = Group(client)
    harness.lose()
    answer = client.ask(Api.OFFSET_COMMIT, 9, **commit_request(group, topic, 7))
    assert code_of(answer) == ErrorCode.not_coordinator
    asked = {"group_id": group.name, "member_id": "m", "generation_id": 1, "group_instance_id": None}
    assert client.ask(Api.HEARTBEAT, 4, **asked).error_code == ErrorCode.not_coordinator


def test_who_waits_to_join_is_sent_away_when_the_leader_changes(broker, harness, client):
    group = Group(client)
    with Member(broker.bootstrap_servers, group.name) as first, Member(broker.bootstrap_servers, group.name) as second:
        first.join()
        first.sync()
        second.ask_for_id()
        second.send_join()  # waits for the first to join again
        while first.heartbeat() == 0:
            pass  # until that was looked at
        harness.lose()
        assert second.receive().error_code == ErrorCode.not_coordinator


def test_an_assignment_is_told_when_it_is_committed_and_outlasts_its_coordinator(broker, harness, client):
    group = Group(client)
    with Member(broker.bootstrap_servers, group.name) as member:
        member.join()
        harness.hold()
        asked = {
            "group_id": group.name,
            "member_id": member.member_id,
            "generation_id": member.generation_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": member.member_id, "assignment": b"all"}],
        }
        waits = Waits(broker, Api.SYNC_GROUP, 5, **asked)
        harness.release()
        assert waits.answer().assignment == b"all"
        harness.lose()
        harness.regain()
        assert member.heartbeat() == 0


def test_a_member_of_the_consumer_protocol_hears_what_is_committed(broker, harness, client):
    group = Group(client)
    asked = {
        "group_id": group.name,
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    harness.hold()
    waits = Waits(broker, Api.CONSUMER_GROUP_HEARTBEAT, 1, **asked)
    harness.release()
    assert waits.answer().member_epoch == 1


@pytest.mark.parametrize("deleted", ["group", "offset"])
def test_a_deletion_is_answered_when_it_is_committed(broker, harness, client, topic, deleted):
    group = Group(client)
    assert group.commit(topic, 6) == 0
    harness.hold()
    if deleted == "group":
        waits = Waits(broker, Api.DELETE_GROUPS, 2, groups_names=[group.name])
        harness.release()
        assert waits.answer().results[0].error_code == 0
    else:
        topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
        waits = Waits(broker, Api.OFFSET_DELETE, 0, group_id=group.name, topics=topics)
        harness.lose()
        assert waits.answer().error_code == ErrorCode.not_coordinator


def test_a_shard_stays_when_its_leader_leads_on_and_goes_when_somebody_led_in_between(broker, harness, client, topic):
    group = Group(client)
    assert group.commit(topic, 6) == 0

    def shard():
        return on_loop(broker, lambda: harness.core.coordinators.groups.coordinator.shard_for(group.name))

    before = shard()
    harness.renew()
    assert shard() is before
    assert group.commit(topic, 7) == 0
    harness.lose()
    harness.regain()
    assert shard() is not before
    assert offset_of(client.ask(Api.OFFSET_FETCH, 9, **fetch_request(group, topic))) == 7


def test_nothing_is_loaded_before_the_broker_knows_of_topics(broker, harness, client, topic):
    group = Group(client)
    assert group.commit(topic, 6) == 0
    metadata = harness.core.metadata
    known = metadata.named(GROUPS)
    harness.lose()
    on_loop(broker, lambda: metadata.remove(GROUPS))
    harness.regain(waits=False)
    for _ in range(3):
        answer = client.ask(Api.OFFSET_FETCH, 9, **fetch_request(group, topic))
        assert answer.groups[0].error_code == ErrorCode.coordinator_load_in_progress
    on_loop(broker, lambda: metadata.put(known))
    harness._wait_until_loaded()
    assert offset_of(client.ask(Api.OFFSET_FETCH, 9, **fetch_request(group, topic))) == 6


def test_the_number_of_partitions_is_the_trees(broker, harness, client, topic):
    group = Group(client)
    metadata = harness.core.metadata
    known = metadata.named(GROUPS)
    # The broker was told of a part of the topic only: the group's partition stays what it is.
    on_loop(broker, lambda: metadata.put(TopicInfo(GROUPS, known.topic_id, known.partitions[:1])))
    assert on_loop(broker, harness.core.coordinators.groups.partition_count) == 2
    on_loop(broker, lambda: harness.core.coordinators.groups.topic_deleted(GROUPS))
    answer = client.ask(Api.OFFSET_COMMIT, 9, **commit_request(group, topic, 7))
    assert code_of(answer) == ErrorCode.coordinator_load_in_progress
    await_on_loop(broker, harness.core.coordinators.groups.ensure())
    assert group.commit(topic, 7) == 0


def test_a_broker_that_leads_none_of_them_sends_clients_on(broker, harness, client, topic):
    """Nobody has asked it for a coordinator since its start: it does not know how many partitions there are, and would
    never find out."""
    group = Group(client)
    harness.lose()
    on_loop(broker, lambda: harness.core.coordinators.groups.topic_deleted(GROUPS))
    answer = client.ask(Api.OFFSET_COMMIT, 9, **commit_request(group, topic, 7))
    assert code_of(answer) == ErrorCode.not_coordinator


def test_a_shard_of_an_epoch_that_is_over_does_not_write(broker, harness, client, topic):
    group = Group(client)

    def write():
        shard = harness.core.coordinators.groups.coordinator.shard_for(group.name)
        for partition in harness.partitions:
            partition.leader_epoch += 1
        shard.write([(b"\x00\x01k", None)])

    with pytest.raises(NotCoordinator):
        on_loop(broker, write)


# -- transactions


def test_a_producer_starts_when_its_epoch_is_committed(broker, harness, client):
    producer = TxnProducer(client)
    assert producer.start().error_code == 0
    harness.hold()
    asked = {"transactional_id": producer.name, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    waits = Waits(broker, Api.INIT_PRODUCER_ID, 4, **asked)
    harness.lose()
    assert waits.answer().error_code == ErrorCode.not_coordinator
    harness.regain()
    assert client.ask(Api.INIT_PRODUCER_ID, 4, **asked).producer_epoch == 1  # nobody was told of the first one


def test_partitions_are_added_when_that_is_committed(broker, harness, client, topic):
    producer = TxnProducer(client)
    producer.start()
    harness.hold()
    asked = {
        "v3_and_below_transactional_id": producer.name,
        "v3_and_below_producer_id": producer.id,
        "v3_and_below_producer_epoch": producer.epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
    }
    first = Waits(broker, Api.ADD_PARTITIONS_TO_TXN, 3, **asked)
    again = Waits(broker, Api.ADD_PARTITIONS_TO_TXN, 3, **asked)  # it is there, and yet may be lost
    harness.release()
    for waits in (first, again):
        (added,) = waits.answer().results_by_topic_v3_and_below
        assert added.results_by_partition[0].partition_error_code == 0


def end_request(producer, *, commit=True):
    identity = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    return {"transactional_id": producer.name, "committed": commit, **identity}


def end_offset(broker, topic):
    return on_loop(broker, lambda: broker.core.partitions.get(topic, 0).log.next_offset)


def test_no_marker_is_written_before_the_decision_is_committed(broker, harness, client, topic):
    producer = TxnProducer(client)
    producer.start()
    assert producer.add((topic, 0)) == [0]
    harness.hold()
    waits = Waits(broker, Api.END_TXN, 3, **end_request(producer))
    assert end_offset(broker, topic) == 0
    harness.release()
    assert waits.answer().error_code == 0
    while end_offset(broker, topic) == 0:
        pass
    assert producer.described().transaction_state == "CompleteCommit"
    assert end_offset(broker, topic) == 1


def test_a_decision_that_was_not_committed_is_open_again(broker, harness, client, topic):
    producer = TxnProducer(client)
    producer.start()
    assert producer.add((topic, 0)) == [0]
    harness.hold()
    waits = Waits(broker, Api.END_TXN, 3, **end_request(producer))
    harness.lose()
    assert waits.answer().error_code == ErrorCode.not_coordinator
    harness.regain()
    assert producer.state == "Ongoing"
    assert end_offset(broker, topic) == 0
    assert producer.end(commit=False).error_code == 0  # the other way: nothing was decided
    assert producer.described().transaction_state == "CompleteAbort"


def test_a_decision_that_was_committed_is_carried_out_by_the_next_coordinator(broker, harness, client, topic):
    producer = TxnProducer(client)
    producer.start()
    assert producer.add((topic, 0)) == [0]

    def decide_and_lose():
        partition = harness.core.partitions.get(topic, 0)
        harness.core.partitions.mark_offline(topic, 0)  # no marker can be written
        harness.core.coordinators.transactions.coordinator.end(
            producer.name, ProducerIdentity(producer.id, producer.epoch), is_commit=True
        )
        harness._lose()
        harness.core.partitions.add(partition)
        harness.core.partitions._offline.clear()

    on_loop(broker, decide_and_lose)
    assert end_offset(broker, topic) == 0
    harness.regain()
    assert producer.described().transaction_state == "CompleteCommit"
    assert end_offset(broker, topic) == 1
    (described,) = (
        client.ask(Api.DESCRIBE_PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": [0]}])
        .topics[0]
        .partitions[0]
        .active_producers
    )
    assert described.coordinator_epoch == 2  # the leader epoch of the coordinator's partition


def test_waiting_is_over_when_the_time_is(harness, client):
    producer = TxnProducer(client)
    producer.start()
    harness.hold()
    answer = client.ask(Api.END_TXN, 3, **end_request(producer, commit=False))
    assert answer.error_code == ErrorCode.invalid_txn_state  # nothing was written, so nothing is waited for
    offsets = {"group_id": "g", "transactional_id": producer.name, "producer_id": producer.id}
    answer = client.ask(Api.ADD_OFFSETS_TO_TXN, 3, producer_epoch=producer.epoch, **offsets)
    assert answer.error_code == ErrorCode.coordinator_not_available
    harness.release()
    assert client.ask(Api.ADD_OFFSETS_TO_TXN, 3, producer_epoch=producer.epoch, **offsets).error_code == 0


def test_markers_from_elsewhere_are_answered_when_they_are_committed(broker, harness):
    marker = {
        "producer_id": 5,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [{"name": GROUPS, "partition_indexes": [0]}],
        "coordinator_epoch": 3,
    }
    harness.hold()
    waits = Waits(broker, Api.WRITE_TXN_MARKERS, 1, markers=[marker])
    harness.release()
    assert waits.answer().markers[0].topics[0].partitions[0].error_code == 0
    with Client(broker.bootstrap_servers) as client:
        older = {**marker, "coordinator_epoch": 2}
        (answer,) = client.ask(Api.WRITE_TXN_MARKERS, 1, markers=[older]).markers
        assert answer.topics[0].partitions[0].error_code == ErrorCode.transaction_coordinator_fenced


def test_what_replicated_says(broker, harness):
    service = harness.core.coordinators.transactions

    async def ask():
        await service.replicated("x")

    await_on_loop(broker, ask())
    on_loop(broker, lambda: setattr(harness.core.partitions.get(TRANSACTIONS, 0).log, "high_watermark", -1))
    on_loop(broker, lambda: setattr(harness.core.partitions.get(TRANSACTIONS, 1).log, "high_watermark", -1))
    with pytest.raises(CoordinatorNotAvailable):
        await_on_loop(broker, ask())
    harness.lose()
    with pytest.raises(NotCoordinator):
        await_on_loop(broker, ask())
