"""Partitions that clients create and delete, on a broker whose clock the tests move (KIP-599)."""

from collections import Counter

import pytest
from broker_harness import all_versions, unique
from quota_harness import manual_broker, throttle_ms

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def manual():
    with manual_broker() as manual:
        yield manual


def create(client, *topics, version=7, validate_only=False):
    """Creates topics, each with its number of partitions."""
    named = [
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": (), "configs": ()}
        for name, count in topics
    ]
    return client.ask(Api.CREATE_TOPICS, version, topics=named, timeout=10_000, validate_only=validate_only)


def delete(client, name, version=5):
    fields = {"topics": [{"name": name, "topic_id": None}]} if version >= 6 else {"topic_names": [name]}
    return client.ask(Api.DELETE_TOPICS, version, timeout=10_000, **fields)


def grow(client, name, count, version=3, validate_only=False):
    topics = [{"name": name, "count": count, "assignments": None}]
    return client.ask(Api.CREATE_PARTITIONS, version, topics=topics, timeout=10_000, validate_only=validate_only)


def codes(answer):
    found = getattr(answer, "topics", None) or getattr(answer, "results", None) or answer.responses
    return [topic.error_code for topic in found]


EXCEEDED = ErrorCode.throttling_quota_exceeded


def test_a_burst_is_allowed_and_then_each_topic_fails_until_the_debt_is_paid(manual):
    manual.set_quota(controller_mutation_rate=1.0)
    with manual.client() as client:
        first = create(client, (unique(), 10), (unique(), 5), (unique(), 1))
        assert codes(first) == [0, 0, EXCEEDED], "eleven tokens at the begin; the second topic makes a debt of four"
        assert throttle_ms(first) == 4_000
        assert manual.muted == ["ControllerMutation"]
        manual.wait(3_999)
        assert manual.muted == ["ControllerMutation"]
        manual.wait(1)
        assert codes(create(client, (unique(), 1))) == [0]


def test_the_error_says_what_kafka_says(manual):
    manual.set_quota(controller_mutation_rate=1.0)
    with manual.client() as client:
        (_, refused) = create(client, (unique(), 20), (unique(), 1)).topics
        assert refused.error_message == "The throttling quota has been exceeded."
        assert (refused.num_partitions, refused.replication_factor) == (-1, -1)


@pytest.mark.parametrize("version", all_versions(Api.CREATE_TOPICS))
def test_older_clients_are_muted_instead(manual, version):
    manual.set_quota(controller_mutation_rate=1.0)
    with manual.client() as client, manual.client() as other:
        names = [unique(), unique()]
        answer = create(client, *((name, 8) for name in names), version=version)
        assert throttle_ms(answer) == (5_000 if version < 6 else 0)
        assert codes(answer) == [0, 0]
        again = create(other, (unique(), 1), version=version)
        assert codes(again) == [0 if version < 6 else EXCEEDED]
        assert throttle_ms(again) == (6_000 if version < 6 else 5_000)


@pytest.mark.parametrize("version", all_versions(Api.DELETE_TOPICS))
def test_deleting_costs_as_much_as_creating(manual, version):
    with manual.client() as client:
        names = [client.create_topic(partitions=count) for count in (15, 1)]
        manual.set_quota(controller_mutation_rate=1.0)
        answer = delete(client, names[0], version)
        assert codes(answer) == [0]
        assert throttle_ms(answer) == (4_000 if version < 5 else 0)
        manual.wait(throttle_ms(answer))
        with manual.client() as other:
            refused = codes(delete(other, names[1], version))
            assert refused == [0 if version < 5 else EXCEEDED]


@pytest.mark.parametrize("version", all_versions(Api.CREATE_PARTITIONS))
def test_new_partitions_count(manual, version):
    with manual.client() as client:
        name = client.create_topic(partitions=3)
        manual.set_quota(controller_mutation_rate=1.0)
        answer = grow(client, name, 16, version)
        assert codes(answer) == [0]
        assert throttle_ms(answer) == (2_000 if version < 3 else 0)
        manual.wait(throttle_ms(answer))
        with manual.client() as other:
            refused = codes(grow(other, name, 19, version))
            assert refused == [0 if version < 3 else EXCEEDED]


def test_what_fails_or_is_only_checked_costs_nothing(manual):
    manual.set_quota(controller_mutation_rate=1.0)
    with manual.client() as client:
        name = client.create_topic(partitions=1)
        for _ in range(30):
            assert codes(create(client, (name, 5))) == [ErrorCode.topic_already_exists]
            assert codes(create(client, (unique(), 5), validate_only=True)) == [0]
            assert codes(grow(client, name, 1)) == [ErrorCode.invalid_partitions]
            assert codes(grow(client, name, 9, validate_only=True)) == [0]
            assert codes(delete(client, "missing")) == [ErrorCode.unknown_topic_or_partition]
        assert codes(create(client, (unique(), 10))) == [0]


def test_topics_that_metadata_creates_count_and_are_created_in_any_case(manual):
    manual.set_quota(controller_mutation_rate=0.5)
    with manual.client() as client:
        names = [unique() for _ in range(8)]
        for name in names:
            (topic,) = client.metadata([name], create=True).topics
            assert topic.error_code == 0
        assert codes(create(client, (unique(), 1))) == [EXCEEDED], "5.5 tokens were there"


def test_others_and_clients_without_a_quota_are_not_limited(manual):
    manual.set_quota(controller_mutation_rate=0.1)
    with manual.client() as limited, manual.client("free") as free:
        answers = Counter(code for _ in range(5) for code in codes(create(free, (unique(), 20))))
        assert answers == {0: 5}
        assert codes(create(limited, (unique(), 20), (unique(), 20))) == [0, EXCEEDED]
        assert codes(create(free, (unique(), 20))) == [0]


def test_without_the_quota_the_debt_is_forgiven(manual):
    manual.set_quota(controller_mutation_rate=0.1)
    with manual.client() as first, manual.client() as second:
        assert codes(create(first, (unique(), 50))) == [0]
        assert codes(create(second, (unique(), 1))) == [EXCEEDED]
    manual.set_quota()
    with manual.client() as third:
        assert codes(create(third, (unique(), 50))) == [0]
