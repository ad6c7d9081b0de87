"""Replicas on several brokers: the real managers, fetchers, sessions and handlers, on the wire's bytes."""

import asyncio
from uuid import UUID

import pytest
from broker_replica_harness import TOPIC_ID, BrokerReplicaHarness, batch, until

from headrace.broker.metadata_cache import Node, PartitionInfo, TopicInfo
from headrace.controller.decisions.leader_elections import Leadership
from headrace.coordination.paths import ISR_CHANGES, LOG_DIR_EVENTS, partition_state_path
from headrace.log.partition_log import Origin
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


@pytest.fixture
async def harness(tmp_path):
    made = BrokerReplicaHarness(tmp_path)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def three(harness):
    """One partition on three brokers, led by the first."""
    for number in (1, 2, 3):
        harness.start(number)
    assert set((await harness.lead(1, (1, 2, 3))).values()) == {ErrorCode.none}
    return harness


async def test_what_is_produced_is_on_all_replicas_when_it_is_acknowledged(three):
    leader = three.brokers[1]
    answer = await leader.produce(b"a", b"b")
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
    assert [broker.values() for broker in three.brokers.values()] == [[b"a", b"b"]] * 3
    assert leader.partition().high_watermark == 2
    for number in range(20):
        await leader.produce(b"%d" % number)
    assert three.brokers[2].values() == three.brokers[3].values() == leader.values()


async def test_followers_learn_of_the_high_watermark(three):
    await three.brokers[1].produce(b"a")
    await until(lambda: three.brokers[2].partition().high_watermark == 1, "the high watermark")


async def test_a_follower_sends_clients_away(three):
    follower = three.brokers[2]
    answer = await follower.produce(b"a")
    assert answer.error_code is ErrorCode.not_leader_or_follower
    assert (await follower.fetch(version=10)).error_code is ErrorCode.not_leader_or_follower
    assert follower.partition().log.next_offset == 0


async def test_consumers_see_what_is_committed_only(three):
    leader = three.brokers[1]
    await leader.produce(b"a")
    three.cut.add(1)  # nobody can fetch
    await until(lambda: not any(session.waiter for session in leader.replicas.sessions), "the end of fetches")
    answer = await leader.produce(b"b", timeout_ms=50)
    assert answer.error_code is ErrorCode.request_timed_out
    fetched = await leader.fetch(0)
    assert fetched.high_watermark == 1
    assert leader.partition().log.next_offset == 2
    three.cut.clear()
    await until(lambda: leader.partition().high_watermark == 2, "the high watermark")


async def test_acks_1_does_not_wait(three):
    three.cut.add(1)
    assert (await three.brokers[1].produce(b"a", acks=1)).error_code is ErrorCode.none


async def test_a_follower_that_stays_away_leaves_the_isr_and_comes_back(harness):
    for number in (1, 2, 3):
        harness.start(number, replica_lag_time_max_ms=300, replica_fetch_wait_max_ms=50)
    await harness.lead(1, (1, 2, 3))
    leader = harness.brokers[1]
    await leader.produce(b"a")
    await harness.stop(3, epoch=0)
    answer = await leader.produce(b"b")
    assert answer.error_code is ErrorCode.none
    assert (await harness.state()).isr == (1, 2)
    assert leader.partition().leader.isr == (1, 2)
    assert leader.values() == harness.brokers[2].values()
    await harness.tell(3, leadership_of(leader), (1, 2, 3))
    await until(lambda: leader.partition().leader.isr == (1, 2, 3), "the follower")
    assert (await harness.state()).isr == (1, 2, 3)
    assert harness.brokers[3].values() == [b"a", b"b"]
    await harness.until_children(ISR_CHANGES)


async def test_changes_of_the_isr_count_once_they_are_written(harness):
    harness.start(1)
    harness.start(2, replica_fetch_wait_max_ms=50)
    await harness.lead(1, (1, 2), to=(1,))
    leader = harness.brokers[1]

    def counts():
        return leader.replicas.isr_shrinks, leader.replicas.isr_expands, leader.replicas.failed_isr_updates

    def propose_isr_without_the_follower():
        change = leader.partition().leader._propose_removing({2})
        leader.replicas.isr_change_requested(leader.partition(), change)

    propose_isr_without_the_follower()
    assert counts() == (0, 0, 0)
    await until(lambda: leader.partition().leader.isr == (1,), "the smaller ISR")
    assert counts() == (1, 0, 0)
    await harness.tell(2, leadership_of(leader), (1, 2))
    await until(lambda: leader.partition().leader.isr == (1, 2), "the follower")
    assert counts() == (1, 1, 0)
    await harness.coordination.set(
        partition_state_path("t", 0), (await harness.state()).to_json()
    )  # somebody else writes
    propose_isr_without_the_follower()
    await until(lambda: leader.partition().leader.pending is None, "the refusal")
    assert counts() == (1, 1, 1)


async def test_a_follower_that_the_controller_has_taken_out_is_not_waited_for(three):
    """It was caught up when it went, in an epoch that is over: it will not ask to be let in."""
    leader = three.brokers[1]
    await leader.produce(b"a")
    await until(lambda: sum(session.waiter is not None for session in leader.replicas.sessions) == 2, "parked fetches")
    await three.lead(1, (1, 2, 3), epoch=1, isr=(1, 2), to=(1, 2))
    assert (await leader.produce(b"b", timeout_ms=2_000)).error_code is ErrorCode.none
    assert leader.partition().leader.isr == (1, 2)


async def test_a_follower_that_is_about_to_be_let_in_and_dies_is_not_waited_for(three):
    leader = three.brokers[1]
    await leader.produce(b"a")
    await three.lead(1, (1, 2, 3), epoch=1, isr=(1, 2), to=(1, 2))
    remote = leader.partition().leader.remote(3)
    remote.fetched(1, 0, 1, leader.clock.monotonic_ms())
    waiting = asyncio.create_task(leader.produce(b"b", timeout_ms=3_000))
    await until(lambda: leader.partition().leader.remote(2).next_offset == 2, "the other follower")
    assert leader.partition().high_watermark == 1
    del leader.metadata.nodes[3]
    leader.replicas.brokers_changed()
    assert (await waiting).error_code is ErrorCode.none


def leadership_of(broker):
    leader = broker.partition().leader
    return Leadership.of(leader.state, leader.version)


async def test_too_few_in_sync(harness):
    harness.topic_configs["t"] = {"min.insync.replicas": "2"}
    harness.start(1)
    harness.start(2)
    await harness.lead(1, (1, 2), isr=(1,), to=(1,))
    leader = harness.brokers[1]
    assert (await leader.produce(b"a")).error_code is ErrorCode.not_enough_replicas
    assert leader.partition().log.next_offset == 0
    assert (await leader.produce(b"a", acks=1)).error_code is ErrorCode.none
    leader.replicas.topic_configured("t", {"min.insync.replicas": "1"})
    assert (await leader.produce(b"b")).error_code is ErrorCode.none


async def test_the_default_of_min_insync_replicas_changes(harness):
    """min.insync.replicas"""
    harness.start(1)
    harness.start(2)
    await harness.lead(1, (1, 2), isr=(1,), to=(1,))
    leader = harness.brokers[1]
    assert (await leader.produce(b"a")).error_code is ErrorCode.none
    for layers, code in [
        (({}, {"min.insync.replicas": "2"}), ErrorCode.not_enough_replicas),
        (({"min.insync.replicas": "1"}, {"min.insync.replicas": "2"}), ErrorCode.none),
        (({"min.insync.replicas": "2"}, {}), ErrorCode.not_enough_replicas),
        (({}, {}), ErrorCode.none),
    ]:
        leader.config.apply_dynamic(*layers)
        leader.replicas.defaults_changed()
        assert (await leader.produce(b"b")).error_code is code
    leader.replicas.topic_configured("t", {"min.insync.replicas": "2"})
    assert (await leader.produce(b"c")).error_code is ErrorCode.not_enough_replicas


async def test_below_min_insync_replicas_writes_are_not_visible_until_it_is_lowered(harness):
    harness.topic_configs["t"] = {"min.insync.replicas": "2"}
    harness.start(1)
    await harness.lead(1, (1, 2), isr=(1,), to=(1,))
    leader = harness.brokers[1]
    assert (await leader.produce(b"a", acks=1)).error_code is ErrorCode.none
    fetched = await leader.fetch(0)
    assert (fetched.high_watermark, len(fetched.records or b"")) == (0, 0)
    # The next leader cannot know the end of the committed records.
    await harness.lead(1, (1, 2), epoch=1, isr=(1,), to=(1,))
    partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    topics = [{"name": "t", "partitions": partitions}]
    answer = await leader.ask(Api.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics)
    assert answer.topics[0].partitions[0].error_code is ErrorCode.offset_not_available
    waiting = asyncio.create_task(leader.fetch(0, max_wait_ms=20_000))
    await until(lambda: leader.delayed_fetch.delayed, "the fetch")
    leader.replicas.topic_configured("t", {"min.insync.replicas": "1"})
    assert leader.partition().high_watermark == 1
    assert len((await waiting).records or b"") > 0


async def test_a_leader_that_is_replaced_lets_producers_go(three):
    leader = three.brokers[1]
    three.cut.add(1)
    await until(lambda: not any(session.waiter for session in leader.replicas.sessions), "the end of fetches")
    waiting = asyncio.create_task(leader.produce(b"lost"))
    await until(lambda: leader.partition().log.next_offset == 1, "the append")
    await three.lead(2, (1, 2, 3), epoch=1, isr=(2, 3))
    assert (await waiting).error_code is ErrorCode.not_leader_or_follower
    assert leader.roles[-1] == ("t", 0, False)
    assert three.brokers[2].roles[-1] == ("t", 0, True)
    await three.brokers[2].produce(b"kept")
    await until(lambda: leader.values() == [b"kept"], "the truncation")
    await until(lambda: 1 in three.brokers[2].partition().leader.isr, "the old leader")


async def test_a_new_leader_knows_what_was_committed_only_after_a_while(three):
    await three.brokers[1].produce(b"a")
    new = three.brokers[2]
    three.cut.add(2)  # nobody tells it
    new.partition().log.high_watermark = 0
    await three.lead(2, (1, 2, 3), epoch=1, isr=(1, 2, 3))
    fields = {"replica_id": -1, "isolation_level": 0}
    partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    topics = [{"name": "t", "partitions": partitions}]
    answer = await new.ask(Api.LIST_OFFSETS, 7, **fields, topics=topics)
    assert answer.topics[0].partitions[0].error_code is ErrorCode.offset_not_available
    answer = await new.ask(Api.LIST_OFFSETS, 4, **fields, topics=topics)
    assert answer.topics[0].partitions[0].error_code is ErrorCode.leader_not_available
    three.cut.clear()
    await until(lambda: new.partition().high_watermark == 1, "the high watermark")
    answer = await new.ask(Api.LIST_OFFSETS, 7, **fields, topics=topics)
    assert (answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].offset) == (ErrorCode.none, 1)


async def test_any_replica_answers_a_tool(three):
    await three.brokers[1].produce(b"a")
    await until(lambda: three.brokers[3].partition().high_watermark == 1, "the high watermark")
    partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    topics = [{"name": "t", "partitions": partitions}]
    for replica_id, code in ((-2, ErrorCode.none), (-1, ErrorCode.not_leader_or_follower)):
        answer = await three.brokers[3].ask(
            Api.LIST_OFFSETS, 7, replica_id=replica_id, isolation_level=0, topics=topics
        )
        assert answer.topics[0].partitions[0].error_code is code


async def test_deleted_records_go_everywhere_before_the_answer(three):
    leader = three.brokers[1]
    await leader.produce(b"a")
    await leader.produce(b"b")
    answer = await leader.ask(
        Api.DELETE_RECORDS,
        2,
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}],
        timeout=5000,
    )
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.low_watermark) == (ErrorCode.none, 1)
    assert [broker.logs.get("t", 0).log_start_offset for broker in three.brokers.values()] == [1, 1, 1]


async def test_a_follower_that_lost_all_starts_where_the_leader_does(three):
    leader = three.brokers[1]
    await leader.produce(b"a", b"b", b"c")
    await three.stop(3, delete=True)
    leader.partition().advance_log_start(2)  # in the middle of a batch
    await three.tell(3, leadership_of(leader), (1, 2, 3))
    follower = three.brokers[3]
    await until(lambda: follower.logs.get("t", 0).next_offset == 3, "the log")
    await until(lambda: follower.logs.get("t", 0).log_start_offset == 2, "the log's start")
    await leader.produce(b"d")
    assert follower.logs.get("t", 0).next_offset == 4


async def test_partitions_that_come_while_a_fetch_is_held_do_not_wait_for_its_end(harness):
    for number in (1, 2):
        harness.start(number, replica_fetch_wait_max_ms=20_000)
    await harness.lead(1, (1, 2))
    leader = harness.brokers[1]
    await leader.produce(b"a")
    for index in (1, 2, 3):
        await until(lambda: any(session.waiter for session in leader.replicas.sessions), "the held fetch")
        await harness.lead(1, (1, 2), index=index)
        assert (await leader.produce(b"b", index=index)).error_code is ErrorCode.none
    assert len(list(harness.brokers[2].replicas.fetchers)) == 1


async def test_a_follower_that_comes_before_its_leader_knows(harness):
    for number in (1, 2):
        harness.start(number)
    await harness.lead(1, (1, 2), to=(2,))
    await until(lambda: harness.served.count((Api.FETCH, 1)) >= 2, "the refusals")
    await harness.lead(1, (1, 2), to=(1,), epoch=0)
    assert (await harness.brokers[1].produce(b"a")).error_code is ErrorCode.none


async def test_leader_epochs_are_checked(three):
    leader = three.brokers[1]
    await three.lead(1, (1, 2, 3), epoch=5)
    old = Leadership(2, 4, (1, 2, 3), 1, 7)
    assert await three.tell(1, old, (1, 2, 3)) is ErrorCode.stale_controller_epoch
    assert leader.partition().is_leader
    same = Leadership(2, 5, (1, 2, 3), 1, 7)
    assert await three.tell(1, same, (1, 2, 3)) is ErrorCode.none
    assert leader.partition().is_leader
    assert await three.tell(1, old, (1, 2, 3), controller_epoch=0) is ErrorCode.stale_controller_epoch
    assert await three.stop(1, epoch=4, delete=True) is ErrorCode.fenced_leader_epoch


async def test_another_topic_of_the_same_name(three):
    codes = await three.lead(1, (1, 2, 3), epoch=9, topic_id=UUID(int=8))
    assert set(codes.values()) == {ErrorCode.inconsistent_topic_id}


async def test_a_stopped_replica_goes(three):
    await three.brokers[1].produce(b"a")
    assert await three.stop(3, delete=True) is ErrorCode.none
    assert three.brokers[3].logs.get("t", 0) is None
    assert three.brokers[3].partition() is None
    assert not list(three.brokers[3].replicas.fetchers)
    assert await three.stop(3, delete=True) is ErrorCode.none


async def test_high_watermarks_outlive_a_restart(three):
    await three.brokers[1].produce(b"a", b"b")
    await until(lambda: three.brokers[2].partition().high_watermark == 2, "the high watermark")
    await three.end(2)
    again = three.start(2)
    assert again.logs.get("t", 0).high_watermark == 2
    assert await three.tell(2, leadership_of(three.brokers[1]), (1, 2, 3)) is ErrorCode.none
    await three.brokers[1].produce(b"c")
    assert again.values() == [b"a", b"b", b"c"]


async def test_consumers_are_sent_to_the_replica_in_their_rack(harness):
    for number, rack in ((1, "a"), (2, "b")):
        harness.start(number, broker_rack=rack, replica_selector_class="x.RackAwareReplicaSelector")
    await harness.lead(1, (1, 2))
    leader, follower = harness.brokers[1], harness.brokers[2]
    await leader.produce(b"v")
    assert (await leader.fetch(0, rack="a")).preferred_read_replica == -1
    sent_away = await leader.fetch(0, rack="b")
    assert (sent_away.preferred_read_replica, len(sent_away.records or b"")) == (2, 0)
    await until(lambda: follower.partition().high_watermark == 1, "the high watermark")
    there = await follower.fetch(0, rack="b")
    assert (there.error_code, there.high_watermark) == (ErrorCode.none, 1)
    assert len(there.records or b"") > 0
    waiting = asyncio.create_task(follower.fetch(1, rack="b", max_wait_ms=20_000))
    await leader.produce(b"w")
    assert len((await waiting).records or b"") > 0


async def test_consumers_are_not_sent_to_a_replica_that_is_not_in_sync(harness):
    """It may be behind for long, and would be chosen again and again."""
    for number, rack in ((1, "a"), (2, "b")):
        harness.start(number, broker_rack=rack, replica_selector_class="x.RackAwareReplicaSelector")
    await harness.lead(1, (1, 2), isr=(1,), to=(1,))
    leader = harness.brokers[1]
    await leader.produce(b"v")
    leader.partition().leader.remote(2).fetched(0, 0, 1, leader.clock.monotonic_ms())
    fetched = await leader.fetch(0, rack="b")
    assert fetched.preferred_read_replica == -1
    assert len(fetched.records or b"") > 0


@pytest.mark.parametrize("selector", ["org.apache.kafka.common.replica.LeaderSelector", "x.MySelector"])
async def test_a_selector_that_does_not_look_at_racks_sends_nobody_away(harness, selector):
    for number, rack in ((1, "a"), (2, "b")):
        harness.start(number, broker_rack=rack, replica_selector_class=selector)
    await harness.lead(1, (1, 2))
    leader = harness.brokers[1]
    await leader.produce(b"v")
    assert (await leader.fetch(0, rack="b")).preferred_read_replica == -1


async def test_a_lost_log_dir_is_told_of(harness):
    harness.start(1)
    harness.start(2)
    await harness.lead(1, (1, 2))
    leader = harness.brokers[1]
    await leader.produce(b"a")
    leader.logs.log_dirs[0].take_offline(OSError(5, "broken"))
    await until(lambda: leader.partitions.is_offline("t", 0), "the loss")
    assert leader.roles[-1] == ("t", 0, False)
    assert (await leader.produce(b"b")).error_code is ErrorCode.kafka_storage_error
    await harness.until_children(LOG_DIR_EVENTS)
    assert set((await harness.lead(1, (1, 2), epoch=1, to=(1,))).values()) == {ErrorCode.kafka_storage_error}


async def test_a_replica_is_made_in_the_log_dir_that_was_asked_for_before_it_came(harness):
    """As reassign-partitions does with a plan that names log dirs: it asks first, and moves then."""
    harness.start(1)
    harness.start(2, folders=2)
    await harness.lead(1, (1,))
    broker = harness.brokers[2]
    broker.metadata.put(TopicInfo("t", TOPIC_ID, (PartitionInfo(1, 0, (1,), (1,), ()),)))
    requested = broker.logs.log_dirs[1].path
    dirs = [{"path": requested, "topics": [{"name": "t", "partitions": [0]}]}]
    answer = await broker.ask(Api.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)
    assert answer.results[0].partitions[0].error_code is ErrorCode.replica_not_available
    await harness.lead(1, (1, 2), epoch=1, isr=(1,))
    assert broker.partition().log.log_dir.path == requested


async def test_a_throttled_follower_catches_up_slowly_and_then_fully(harness):
    harness.topic_configs["t"] = {
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "0:2",
    }
    rate = {"leader_replication_throttled_rate": 2000, "follower_replication_throttled_rate": 2000}
    harness.start(1, **rate)
    harness.start(2, **rate, replica_fetch_max_bytes=1000, replica_fetch_wait_max_ms=50)
    await harness.lead(1, (1, 2), isr=(1,), to=(1,))
    leader = harness.brokers[1]
    for _ in range(40):
        await leader.produce(b"x" * 1000)
    await harness.tell(2, leadership_of(leader), (1, 2))
    follower = harness.brokers[2]
    await until(lambda: follower.partition().log.next_offset > 0, "the first")
    await until(lambda: leader.replicas.throttles._sent.is_exceeded, "the throttle")
    assert follower.partition().log.next_offset < 40
    for broker in harness.brokers.values():
        broker.replicas.topic_configured("t", {})
    await until(lambda: follower.partition().log.next_offset == 40, "the rest")


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_higher_rate_ends_the_throttle_of_a_follower(harness, side):
    """leader.replication.throttled.rate, follower.replication.throttled.rate"""
    broker_id = 1 if side == "leader" else 2
    harness.topic_configs["t"] = {f"{side}.replication.throttled.replicas": f"0:{broker_id}"}
    harness.start(1)
    harness.start(2, replica_fetch_max_bytes=1000, replica_fetch_wait_max_ms=50)
    leader, follower = harness.brokers[1], harness.brokers[2]
    name, throttled = f"{side}.replication.throttled.rate", harness.brokers[broker_id]
    throttled.config.apply_dynamic({}, {name: "2000"})
    await harness.lead(1, (1, 2), isr=(1,), to=(1,))
    for _ in range(40):
        await leader.produce(b"x" * 1000)
    await harness.tell(2, leadership_of(leader), (1, 2))
    throttles = throttled.replicas.throttles
    measured = throttles._sent if side == "leader" else throttles._received
    await until(lambda: measured.is_exceeded, "the throttle")
    assert follower.partition().log.next_offset < 40
    throttled.config.apply_dynamic({name: "100000000"}, {name: "2000"})
    await until(lambda: follower.partition().log.next_offset == 40, "the rest")


async def test_the_number_of_fetchers_changes_while_they_fetch(harness):
    """num.replica.fetchers"""
    for number in (1, 2):
        harness.start(number)
    leader, follower = harness.brokers[1], harness.brokers[2]
    for index in range(8):
        await harness.lead(1, (1, 2), index=index)

    async def are_used(count):
        """The leader has as many sessions of the follower, and records arrive over all of them."""
        await until(lambda: len({id(fetcher) for fetcher in follower.replicas.fetchers}) == count, "the fetchers")
        for index in range(8):
            assert (await leader.produce(b"x", index=index)).error_code is ErrorCode.none
        assert all(fetcher.partitions for fetcher in follower.replicas.fetchers)
        assert sum(len(fetcher.partitions) for fetcher in follower.replicas.fetchers) == 8
        waiting = [session for session in leader.replicas.sessions if session.waiter is not None]
        assert len(waiting) <= count

    await are_used(1)
    follower.config.apply_dynamic({"num.replica.fetchers": "2"}, {})
    await are_used(2)
    follower.config.apply_dynamic({}, {"num.replica.fetchers": "4"})
    await are_used(4)
    follower.config.apply_dynamic({}, {})
    await are_used(1)
    assert [len(follower.values(index=index)) for index in range(8)] == [4] * 8


async def test_fetch_sessions_of_followers(harness):
    harness.start(1)
    await harness.lead(1, (1, 2), isr=(1,), to=(1,))
    leader = harness.brokers[1]
    leader.metadata.nodes[2] = Node(2, "h", 1)
    await leader.produce(b"a")

    async def fetch(session_id, epoch, *offsets, forget=()):
        topic = {"topic": "t", "topic_id": TOPIC_ID}
        asked = [
            {
                "partition": 0,
                "current_leader_epoch": 0,
                "fetch_offset": offset,
                "last_fetched_epoch": 0 if offset else -1,
                "log_start_offset": 0,
                "partition_max_bytes": 1 << 20,
            }
            for offset in offsets
        ]
        return await leader.ask(
            Api.FETCH,
            13,
            replica_id=2,
            max_wait=1,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=[{**topic, "partitions": asked}] if asked else [],
            forgotten_topics_data=[{**topic, "partitions": forget}] if forget else [],
            rack_id="",
        )

    assert (await fetch(5, 1)).error_code is ErrorCode.fetch_session_id_not_found
    first = await fetch(0, 0, 0)
    assert len(first.responses[0].partitions[0].records) > 0
    session_id = first.session_id
    assert (await fetch(session_id, 2, 1)).error_code is ErrorCode.invalid_fetch_session_epoch
    assert leader.partition().leader.remote(2).next_offset == 0
    await fetch(session_id, 1, 1)
    assert leader.partition().leader.remote(2).next_offset == 1
    await until(lambda: leader.partition().leader.isr == (1, 2), "the follower")
    assert (await fetch(session_id, 2)).responses == ()
    await leader.produce(b"b", acks=1)
    assert len((await fetch(session_id, 3)).responses[0].partitions[0].records) > 0
    assert (await fetch(session_id, 4, forget=(0,))).responses == ()
    await leader.produce(b"c", acks=1)
    assert (await fetch(session_id, 5)).responses == ()
    assert not leader.partition().follower_readers
    assert (await fetch(0, -1, 1)).session_id == 0
    assert not leader.partition().follower_readers


async def test_a_follower_with_something_else_is_told_where_they_part(three):
    leader, follower = three.brokers[1], three.brokers[2]
    await leader.produce(b"a")
    log = follower.logs.get("t", 0)
    await three.lead(1, (1, 2, 3), epoch=3, to=(1, 3))
    log.append(batch(b"x", base_offset=1, leader_epoch=2), leader_epoch=2, origin=Origin.REPLICATION)
    await three.tell(2, leadership_of(leader), (1, 2, 3))
    await leader.produce(b"b")
    assert follower.values() == [b"a", b"b"]


async def test_roles_change_without_the_tree(harness):
    harness.start(1)
    harness.is_tree_away = True
    assert set((await harness.lead(1, (1,))).values()) == {ErrorCode.none}
    assert (await harness.brokers[1].produce(b"a")).error_code is ErrorCode.none
    assert harness.are_settings_wanted  # as soon as they can be read
