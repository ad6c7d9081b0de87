"""The bytes of subscriptions and assignments agree with kio's schemas, and with those of other Python clients."""

import io
from importlib import import_module

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from headrace.protocol.topic_partition import TopicPartition
from headrace.protocol.wire.consumer_protocol import (
    Assignment,
    StickyUserData,
    Subscription,
    Unreadable,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
)

NAMES = st.text("abc.-é", min_size=1, max_size=8)
OWNED = st.frozensets(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), max_size=6).map(
    lambda found: tuple(sorted(found))
)
USER_DATA = st.none() | st.binary(max_size=9)
SUBSCRIPTIONS = st.builds(
    Subscription,
    st.frozensets(NAMES).map(lambda found: tuple(sorted(found))),
    USER_DATA,
    OWNED,
    st.integers(-1, 2**31 - 1),
    st.none() | NAMES,
)
VERSIONS = st.integers(0, 3)


def flat(topics: object) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(one.topic, number) for one in topics for number in one.partitions)  # type: ignore[attr-defined]


def read_by_kio(kind: str, data: bytes) -> object:
    version = int.from_bytes(data[:2], "big")
    module = import_module(f"kio.schema.consumer_protocol_{kind}.v{version}.data")
    reader = entity_reader(getattr(module, f"ConsumerProtocol{kind.title()}"))
    return reader(data, 2)[0]


@given(SUBSCRIPTIONS, VERSIONS)
def test_a_subscription_reads_back_as_far_as_its_version_knows(subscription, version):
    known = subscription
    if version < 3:
        known = known._replace(rack_id=None)
    if version < 2:
        known = known._replace(generation=-1)
    if version < 1:
        known = known._replace(owned=())
    assert decode_subscription(encode_subscription(subscription, version)) == known


@given(SUBSCRIPTIONS)
def test_kio_reads_our_subscription(subscription):
    read = read_by_kio("subscription", encode_subscription(subscription))
    assert (tuple(read.topics), read.user_data, flat(read.owned_partitions)) == subscription[:3]
    assert (read.generation_id, read.rack_id) == subscription[3:]


@given(OWNED, USER_DATA, VERSIONS)
def test_kio_reads_our_assignment_and_so_do_we(partitions, user_data, version):
    data = encode_assignment(Assignment(partitions, user_data), version)
    read = read_by_kio("assignment", data)
    assert (flat(read.assigned_partitions), read.user_data) == (partitions, user_data)
    assert decode_assignment(data) == Assignment(partitions, user_data)


def test_the_bytes_of_other_clients():
    subscription = ConsumerProtocolMemberMetadata(0, ["a", "b"], b"x").encode()
    assert subscription.hex() == "0000000000020001610001620000000178"
    assert encode_subscription(Subscription(("b", "a"), b"x"), 0) == subscription
    assignment = ConsumerProtocolMemberAssignment(0, [("a", [0, 2])], b"").encode()
    assert encode_assignment(Assignment((TopicPartition("a", 0), TopicPartition("a", 2)), b""), 0) == assignment


def test_the_bytes_of_a_subscription_with_all_fields():
    data = encode_subscription(Subscription(("t",), None, (TopicPartition("t", 5),), 9, "r"))
    assert data.hex() == "000300000001000174ffffffff00000001000174000000010000000500000009000172"


def test_sticky_user_data_are_the_same_in_other_clients():
    theirs = StickyAssignorUserDataV1([("a", [0, 2]), ("b", [1])], 7).encode()
    ours = StickyUserData((TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)), 7)
    assert encode_sticky_user_data(ours) == theirs
    assert decode_sticky_user_data(theirs) == ours
    assert StickyAssignorUserDataV1.decode(io.BytesIO(theirs)).generation == 7


def test_sticky_user_data_without_a_generation_or_of_a_stranger():
    ours = StickyUserData((TopicPartition("a", 0),), 7)
    assert decode_sticky_user_data(encode_sticky_user_data(ours)[:-4]) == ours._replace(generation=-1)
    for nothing in (None, b"", b"\0\0\0\1x"):
        assert decode_sticky_user_data(nothing) == StickyUserData(())


def test_cooperative_user_data_are_a_generation():
    assert decode_cooperative_user_data(encode_cooperative_user_data(3)) == 3
    assert [decode_cooperative_user_data(data) for data in (None, b"", b"\0")] == [-1, -1, -1]


def test_a_higher_version_is_read_as_far_as_it_is_known():
    data = encode_subscription(Subscription(("t",), b"", (), 4))
    assert decode_subscription(b"\0\7" + data[2:] + b"more").generation == 4


def test_a_forgotten_member_gets_nothing():
    assert decode_assignment(b"") == Assignment(())


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data):
    for decode, kind in ((decode_subscription, Subscription), (decode_assignment, Assignment)):
        try:
            decoded = decode(data)
        except Unreadable:
            continue
        assert isinstance(decoded, kind)
    assert decode_sticky_user_data(data) is not None


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1\0\5ab", b"\0\0\0\0\0\1\0\1\xff"])
def test_cut_bytes_are_refused(data):
    with pytest.raises(Unreadable):
        decode_subscription(data)


def test_the_bytes_of_apache_kafka_4_3():
    owned = (TopicPartition("a", 0), TopicPartition("a", 2))
    subscription = Subscription(("b", "a"), None, owned[1:], 9, "r")
    assert encode_subscription(subscription).hex() == (
        "000300000002000161000162ffffffff00000001000161000000010000000200000009000172"
    )
    assert encode_assignment(Assignment(owned)).hex() == "000300000001000161000000020000000000000002ffffffff"
    assert encode_sticky_user_data(StickyUserData(owned, 7)).hex() == "0000000100016100000002000000000000000200000007"
    assert encode_cooperative_user_data(-1).hex() == "ffffffff"
