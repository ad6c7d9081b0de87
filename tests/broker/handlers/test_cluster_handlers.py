"""The APIs of a cluster's brokers: what reaches the replicas and the controller, and how their refusals are answered.

The handlers are called with a broker that has only what they look at.
"""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest
from peer_harness import LISTENER, leaders, metadata, stop

from headrace.broker.authorization.authorizer import AllowAll
from headrace.broker.control_messages import SharedMetadata, leader_and_isr_body, stop_replica_body
from headrace.broker.network.handler_binding import bound_handler, served_apis
from headrace.broker.network.slices import Answers, Slices
from headrace.controller.decisions.broker_requests import LeaderAndIsrResponse, StopReplicaResponse
from headrace.controller.decisions.leader_elections import ElectionStrategy
from headrace.controller.decisions.reassignments import Assignment
from headrace.protocol.api import Api, versions_of
from headrace.protocol.errors import (
    BrokerNotAvailable,
    ErrorCode,
    NotController,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    StaleControllerEpoch,
)
from headrace.protocol.kio import entity_reader, load_request_schema, load_response_schema
from headrace.protocol.wire.encoder import encoder_of
from headrace.runtime.clock import SystemClock

IDS = {"t": UUID(int=1)}


class FakeControlRequests:
    def __init__(self, outcome):
        self.told = []
        self._outcome = outcome

    async def leader_and_isr(self, *request):
        self.told += request
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    update_metadata = stop_replica = controlled_shutdown = leader_and_isr


class FakeController:
    def __init__(self, outcome):
        self.asked = []
        self._outcome = outcome

    async def ask(self, *arguments, **options):
        return self.ask_now(*arguments, **options)

    def ask_now(self, *arguments, **options):
        self.asked.append((*arguments, options) if options else arguments)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    elect_leaders = reassign = ask
    reassignments = ask_now


def broker_with(**parts):
    config = SimpleNamespace(listeners=SimpleNamespace(inter_broker=LISTENER))
    return SimpleNamespace(authorizer=AllowAll(), broker_id=2, config=config, metadata=None, **parts)


async def ask(api, broker, body, version=None):
    """The answer, as it would be read."""
    version = versions_of(api)[-1] if version is None else version
    out = bytearray()
    encoder_of(load_request_schema(api, version))(out, body, [])
    entity, _ = entity_reader(load_request_schema(api, version))(bytes(out), 0)
    request = SimpleNamespace(
        connection=None, body=entity, version=version, slices=Slices(asyncio.get_running_loop(), SystemClock())
    )
    request.collect = lambda *_: Answers(None)
    reply = await bound_handler(api, broker)(request)
    out = bytearray()
    schema = load_response_schema(api, version)
    encoder_of(schema)(out, reply, [])
    return entity_reader(schema)(bytes(out), 0)[0]


def test_only_a_cluster_serves_what_brokers_ask_each_other():
    alone, together = served_apis(in_cluster=False), served_apis(in_cluster=True)
    assert set(together) - set(alone) == {4, 5, 6, 7}


# -- from the controller


async def test_leader_and_isr():
    request = leaders(2, 50, IDS, indexes=(0, 1))
    codes = {("t", 0): ErrorCode.none, ("t", 1): ErrorCode.kafka_storage_error}
    control = FakeControlRequests(LeaderAndIsrResponse(ErrorCode.none, codes))
    answer = await ask(
        Api.LEADER_AND_ISR, broker_with(control_requests=control), leader_and_isr_body(request, LISTENER)
    )
    assert control.told == [request]
    assert answer.error_code == 0
    (topic,) = answer.topics
    assert topic.topic_id == IDS["t"]
    assert [(one.partition_index, one.error_code) for one in topic.partition_errors] == [(0, 0), (1, 56)]


async def test_stop_replica():
    request = stop(2, 50, "t", 0, 1)
    codes = {("t", 0): ErrorCode.none, ("t", 1): ErrorCode.fenced_leader_epoch}
    control = FakeControlRequests(StopReplicaResponse(ErrorCode.none, codes))
    answer = await ask(Api.STOP_REPLICA, broker_with(control_requests=control), stop_replica_body(request))
    assert control.told == [request]
    assert [(one.topic_name, one.partition_index, one.error_code) for one in answer.partition_errors] == [
        ("t", 0, 0),
        ("t", 1, 74),
    ]


@pytest.mark.parametrize("refusal", [StaleControllerEpoch("old"), StaleBrokerEpoch("old")])
async def test_requests_of_the_past_are_refused(refusal):
    broker = broker_with(control_requests=FakeControlRequests(refusal))
    answer = await ask(Api.LEADER_AND_ISR, broker, leader_and_isr_body(leaders(2, 50, IDS), LISTENER))
    assert (answer.error_code, answer.topics) == (refusal.code, ())
    answer = await ask(Api.STOP_REPLICA, broker, stop_replica_body(stop(2, 50, "t", 0)))
    assert (answer.error_code, answer.partition_errors) == (refusal.code, ())


async def test_update_metadata():
    control = FakeControlRequests(None)
    request = metadata(2, 50, IDS)
    body = SharedMetadata(request).body(request, 8)
    answer = await ask(Api.UPDATE_METADATA, broker_with(control_requests=control), body)
    assert (answer.error_code, control.told) == (0, [request])
    refusing = broker_with(control_requests=FakeControlRequests(StaleControllerEpoch("old")))
    assert (await ask(Api.UPDATE_METADATA, refusing, body)).error_code == ErrorCode.stale_controller_epoch


# -- to the controller


async def test_controlled_shutdown():
    control = FakeControlRequests([("b", 1), ("a", 0)])
    body = {"broker_id": 3, "broker_epoch": 70}
    answer = await ask(Api.CONTROLLED_SHUTDOWN, broker_with(control_requests=control), body)
    assert control.told == [3, 70]
    left = [(one.topic_name, one.partition_index) for one in answer.remaining_partitions]
    assert (answer.error_code, left) == (0, [("a", 0), ("b", 1)])
    for refusal in (NotController("no"), StaleBrokerEpoch("old"), BrokerNotAvailable("gone")):
        broker = broker_with(control_requests=FakeControlRequests(refusal))
        assert (await ask(Api.CONTROLLED_SHUTDOWN, broker, body)).error_code == refusal.code


ELECTION = {"election_type": 1, "topic_partitions": [{"topic": "t", "partitions": [0, 1]}], "timeout": 1000}


async def test_elections():
    controller = FakeController({("t", 0): None, ("t", 1): PreferredLeaderNotAvailable("t-1 is not in sync")})
    answer = await ask(Api.ELECT_LEADERS, broker_with(controller=controller), ELECTION)
    assert controller.asked == [([("t", 0), ("t", 1)], ElectionStrategy.UNCLEAN)]
    (topic,) = answer.replica_election_results
    assert [(one.partition_id, one.error_code, one.error_message) for one in topic.partition_result] == [
        (0, 0, None),
        (1, ErrorCode.preferred_leader_not_available, "t-1 is not in sync"),
    ]


@pytest.mark.parametrize("version", [0, 2])
async def test_elections_are_for_the_controller(version):
    broker = broker_with(controller=FakeController(NotController("not I")))
    answer = await ask(Api.ELECT_LEADERS, broker, ELECTION, version)
    assert getattr(answer, "error_code", ErrorCode.not_controller) == ErrorCode.not_controller
    (topic,) = answer.replica_election_results
    assert [one.error_code for one in topic.partition_result] == [ErrorCode.not_controller] * 2


async def test_an_election_that_takes_too_long_goes_on():
    controller, may_end, ended = FakeController({}), asyncio.Event(), asyncio.Event()

    async def elect(partitions, how):
        await may_end.wait()
        ended.set()
        raise NotController("not any more")

    controller.elect_leaders = elect
    answer = await ask(Api.ELECT_LEADERS, broker_with(controller=controller), {**ELECTION, "timeout": 1})
    assert answer.error_code == ErrorCode.request_timed_out
    may_end.set()
    await ended.wait()


async def test_moves():
    controller = FakeController({("t", 0): None, ("t", 1): None})
    partitions = [{"partition_index": 0, "replicas": [1, 2]}, {"partition_index": 1, "replicas": None}]
    body = {
        "topics": [{"name": "t", "partitions": partitions}],
        "timeout": 1000,
        "allow_replication_factor_change": False,
    }
    answer = await ask(Api.ALTER_PARTITION_REASSIGNMENTS, broker_with(controller=controller), body)
    assert controller.asked == [({("t", 0): (1, 2), ("t", 1): None}, {"may_change_count": False})]
    assert (answer.error_code, answer.allow_replication_factor_change) == (0, False)
    assert [one.error_code for one in answer.responses[0].partitions] == [0, 0]
    answer = await ask(
        Api.ALTER_PARTITION_REASSIGNMENTS, broker_with(controller=FakeController(NotController("not I"))), body
    )
    assert (answer.error_code, answer.error_message, answer.responses) == (ErrorCode.not_controller, "not I", ())


async def test_moves_that_are_under_way():
    move = Assignment((3, 1, 2), (3,), (1,))
    controller = FakeController({("t", 1): move, ("t", 2): move, ("u", 1): move})
    wanted = {"topics": [{"name": "t", "partition_indexes": [0, 1]}], "timeout": 1000}
    answer = await ask(Api.LIST_PARTITION_REASSIGNMENTS, broker_with(controller=controller), wanted)
    (topic,) = answer.topics
    (move,) = topic.partitions
    assert (move.partition_index, move.replicas, move.adding_replicas, move.removing_replicas) == (
        1, (3, 1, 2), (3,), (1,),
    )  # fmt: skip
    everything = {"topics": None, "timeout": 1000}
    answer = await ask(Api.LIST_PARTITION_REASSIGNMENTS, broker_with(controller=controller), everything)
    assert {topic.name: len(topic.partitions) for topic in answer.topics} == {"t": 2, "u": 1}
    refusing = broker_with(controller=FakeController(NotController("not I")))
    answer = await ask(Api.LIST_PARTITION_REASSIGNMENTS, refusing, everything)
    assert (answer.error_code, answer.topics) == (ErrorCode.not_controller, ())
