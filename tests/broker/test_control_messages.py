"""Requests of the controller become messages and the same requests again, in every version."""

from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peer_harness import LISTENER, leaders

from headrace.broker.control_messages import (
    SharedMetadata,
    leader_and_isr_body,
    leader_and_isr_reply,
    leader_and_isr_response,
    read_leader_and_isr,
    read_stop_replica,
    read_update_metadata,
    stop_replica_body,
    stop_replica_reply,
    stop_replica_response,
)
from headrace.controller.decisions.broker_requests import (
    LeaderAndIsr,
    LeaderAndIsrPartition,
    LeaderAndIsrResponse,
    MetadataPartition,
    StoppedPartition,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
)
from headrace.controller.decisions.context import LiveBroker
from headrace.controller.decisions.leader_elections import Leadership
from headrace.controller.decisions.reassignments import Assignment
from headrace.coordination.znodes import BrokerRegistration, Endpoint
from headrace.protocol.api import Api, versions_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.kio import entity_reader, load_request_schema, load_response_schema
from headrace.protocol.wire.encoder import encoder_of

BROKER = 2
int32s = st.integers(-2, 2**31 - 1)
broker_ids = st.integers(0, 5)
replica_lists = st.lists(broker_ids, unique=True, max_size=4).map(tuple)
topics = st.sampled_from(["a", "b", "orders"])
uuids = st.uuids()
heads = st.tuples(st.just(BROKER), st.integers(-1, 2**63 - 1), broker_ids, int32s)
leaderships = st.builds(Leadership, int32s, int32s, replica_lists, int32s, int32s, st.booleans())
clean_leaderships = leaderships.map(lambda one: one._replace(is_recovering=False))
endpoints = st.builds(
    Endpoint, st.sampled_from([LISTENER, "CLIENTS"]), st.sampled_from(["PLAINTEXT", "SASL_SSL"]),
    st.sampled_from(["127.0.0.1", "::1", "host"]), st.integers(1, 65535),
)  # fmt: skip


def lives(broker_id, endpoints, rack=None):
    return LiveBroker(broker_id, -1, BrokerRegistration(tuple(endpoints), -1, rack))


brokers = st.builds(lives, broker_ids, st.lists(endpoints, max_size=3), st.sampled_from([None, "r1"]))
between_brokers = endpoints.map(lambda one: one._replace(listener=LISTENER, security_protocol="PLAINTEXT"))
leaders_only = st.builds(lives, broker_ids, st.tuples(between_brokers), st.none())


def by_topic(partitions):
    """As they come back: a topic's stand together, the topics in the order in which they first came."""
    order = list(dict.fromkeys(told.topic for told in partitions))
    return tuple(sorted(partitions, key=lambda told: order.index(told.topic)))


def with_ids(draw, partitions):
    return {topic: draw(uuids) for topic in dict.fromkeys(told.topic for told in partitions)}


@st.composite
def leader_requests(draw):
    led = st.builds(
        LeaderAndIsrPartition, topics, st.integers(0, 99), leaderships,
        st.builds(Assignment, replica_lists, replica_lists, replica_lists), st.booleans(),
    )  # fmt: skip
    partitions = by_topic(draw(st.lists(led, max_size=6)))
    live = tuple(draw(st.lists(leaders_only, max_size=3)))
    return LeaderAndIsr(*draw(heads), partitions, with_ids(draw, partitions), live)


@st.composite
def metadata_requests(draw):
    published = st.tuples(topics, st.integers(0, 99), clean_leaderships, replica_lists, replica_lists)
    told = [
        MetadataPartition(topic, index, leadership.leader, leadership, replicas, offline)
        for topic, index, leadership, replicas, offline in draw(st.lists(published, max_size=6))
    ]
    partitions = by_topic(told)
    return UpdateMetadata(
        *draw(heads), partitions, with_ids(draw, partitions), tuple(draw(st.lists(brokers, max_size=3)))
    )


stop_requests = st.builds(
    lambda head, partitions: StopReplica(*head, by_topic(partitions)),
    heads,
    st.lists(st.builds(StoppedPartition, topics, st.integers(0, 99), int32s, st.booleans()), max_size=6),
)


def through(schema, body):
    out = bytearray()
    encoder_of(schema)(out, body, [])
    entity, size_bytes = entity_reader(schema)(bytes(out), 0)
    assert size_bytes == len(out)
    return entity


@pytest.mark.parametrize("version", versions_of(Api.LEADER_AND_ISR))
@settings(max_examples=25, deadline=None)
@given(request=leader_requests())
def test_leader_and_isr(version, request):
    body = through(load_request_schema(Api.LEADER_AND_ISR, version), leader_and_isr_body(request, LISTENER))
    got = read_leader_and_isr(body, BROKER, LISTENER)
    if version < 6:  # KIP-704
        clean = [told._replace(leadership=told.leadership._replace(is_recovering=False)) for told in request.partitions]
        request = request._replace(partitions=tuple(clean))
    assert got == request


@pytest.mark.parametrize("version", versions_of(Api.STOP_REPLICA))
@settings(max_examples=25, deadline=None)
@given(request=stop_requests)
def test_stop_replica(version, request):
    assert (
        read_stop_replica(through(load_request_schema(Api.STOP_REPLICA, version), stop_replica_body(request)), BROKER)
        == request
    )


@pytest.mark.parametrize("version", versions_of(Api.UPDATE_METADATA))
@settings(max_examples=25, deadline=None)
@given(request=metadata_requests())
def test_update_metadata(version, request):
    body = SharedMetadata(request).body(request, version)
    assert read_update_metadata(through(load_request_schema(Api.UPDATE_METADATA, version), body), BROKER) == request


def test_a_leader_without_that_listener_is_not_said():
    registration = BrokerRegistration((Endpoint("CLIENTS", "PLAINTEXT", "h", 1),), 0)
    request = leaders(BROKER, 5, {"t": UUID(int=1)}, live_leaders=(LiveBroker(1, 3, registration),))
    assert leader_and_isr_body(request, LISTENER)["live_leaders"] == []


# -- answers


def answer_through(request, answer):
    schema = load_response_schema(Api.LEADER_AND_ISR, 7)
    return leader_and_isr_response(request, through(schema, leader_and_isr_reply(request, answer)))


def test_answers_to_leader_and_isr_name_their_topics_again():
    request = leaders(BROKER, 5, {"a": UUID(int=1), "b": UUID(int=2)}, indexes=(0, 3))
    answer = LeaderAndIsrResponse(
        ErrorCode.none,
        {
            ("b", 3): ErrorCode.kafka_storage_error,
            ("a", 0): ErrorCode.none,
            ("a", 3): ErrorCode.none,
            ("b", 0): ErrorCode.none,
        },
    )
    assert answer_through(request, answer) == answer


def test_topics_without_ids_are_told_apart_by_their_order():
    request = leaders(BROKER, 5, {"old": None, "new": UUID(int=2), "older": None})
    answer = LeaderAndIsrResponse(
        ErrorCode.none,
        {
            ("older", 0): ErrorCode.kafka_storage_error,
            ("old", 0): ErrorCode.none,
            ("new", 0): ErrorCode.unknown_server_error,
        },
    )
    assert answer_through(request, answer) == answer


def test_a_request_that_is_refused_has_no_partitions_in_its_answer():
    request = leaders(BROKER, 5, {"a": UUID(int=1)})
    refused = LeaderAndIsrResponse(ErrorCode.stale_broker_epoch, {})
    assert answer_through(request, refused) == refused


def test_a_topic_that_was_not_asked_about_is_left_out():
    request = leaders(BROKER, 5, {"a": UUID(int=1)})
    stranger = SimpleNamespace(topic_id=UUID(int=9), partition_errors=())
    assert leader_and_isr_response(request, SimpleNamespace(error_code=0, topics=(stranger,))).partitions == {}


def test_answers_to_stop_replica():
    answer = StopReplicaResponse(ErrorCode.none, {("a", 0): ErrorCode.fenced_leader_epoch, ("b", 1): ErrorCode.none})
    assert (
        stop_replica_response(through(load_response_schema(Api.STOP_REPLICA, 4), stop_replica_reply(answer))) == answer
    )
