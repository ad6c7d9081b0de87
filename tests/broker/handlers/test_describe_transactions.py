"""DescribeTransactions and ListTransactions: what the coordinator knows."""

import pytest
from broker_harness import all_versions, unique
from transaction_harness import TxnProducer

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def idle(client):
    made = TxnProducer(client, unique("idle"))
    assert made.start().error_code == 0
    return made


@pytest.fixture
def ongoing(client, topic):
    made = TxnProducer(client, unique("ongoing"), timeout_ms=30_000)
    made.start()
    assert made.add((topic, 0)) == [0]
    return made


def test_described(client, topic, idle, ongoing):
    idle.end(commit=False, version=5)
    idle.described()
    names = [ongoing.name, idle.name]
    first, second = client.ask(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names).transaction_states
    assert (first.error_code, first.transactional_id, first.transaction_state) == (0, ongoing.name, "Ongoing")
    assert first.transaction_timeout.total_seconds() == 30
    assert (first.producer_id, first.producer_epoch) == (ongoing.id, ongoing.epoch)
    assert [(each.topic, each.partitions) for each in first.topics] == [(topic, (0,))]
    assert (second.error_code, second.transaction_state, second.topics) == (0, "CompleteAbort", ())


@pytest.mark.parametrize(
    ("name", "code"), [("", ErrorCode.invalid_request), (None, ErrorCode.transactional_id_not_found)]
)
def test_not_described(client, idle, name, code):
    name = unique("nobody") if name is None else name
    (answer,) = client.ask(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name]).transaction_states
    assert (answer.error_code, answer.transactional_id) == (code, name)


def listed(client, version=2, **fields):
    filters = {"state_filters": (), "producer_id_filters": (), **fields}
    answer = client.ask(Api.LIST_TRANSACTIONS, version, **filters)
    assert answer.error_code == 0
    return {each.transactional_id: (each.producer_id, each.transaction_state) for each in answer.transaction_states}


@pytest.mark.parametrize("version", all_versions(Api.LIST_TRANSACTIONS))
def test_listed(client, idle, ongoing, version):
    found = listed(client, version)
    assert found[idle.name] == (idle.id, "Empty")
    assert found[ongoing.name] == (ongoing.id, "Ongoing")
    only = listed(client, version, state_filters=["Ongoing"])
    assert ongoing.name in only
    assert idle.name not in only
    assert listed(client, version, producer_id_filters=[idle.id]) == {idle.name: (idle.id, "Empty")}


def test_unknown_states_are_named(client, idle):
    filters = {"state_filters": ["Ongoing", "Sleeping"], "producer_id_filters": ()}
    assert client.ask(Api.LIST_TRANSACTIONS, 0, **filters).unknown_state_filters == ("Sleeping",)
    assert listed(client, 0, state_filters=["Sleeping"]) == {}


def test_listed_by_how_long_they_run(client, ongoing):
    # Longer than 0 ms: not in the millisecond in which it began, and two requests fit into that one.
    assert any(ongoing.name in listed(client, 1, duration_filter=0) for _ in range(1_000))
    assert ongoing.name not in listed(client, 1, duration_filter=3_600_000)


def test_listed_by_pattern(client, idle, ongoing):
    assert listed(client, transactional_id_pattern=f".dl[e]{idle.name[4:]}").keys() == {idle.name}
    assert listed(client, transactional_id_pattern="ngoin") == {}
    filters = {"state_filters": (), "producer_id_filters": (), "transactional_id_pattern": "(("}
    assert client.ask(Api.LIST_TRANSACTIONS, 2, **filters).error_code == ErrorCode.invalid_regular_expression


def test_a_pattern_over_ids_that_are_no_names_of_topics(client):
    made = TxnProducer(client, unique("ä/b c:"))
    made.start()
    for pattern in (f".*{made.name[6:]}", f"ä/b c:.*{made.name[-4:]}", rf"[^x]+{made.name[-4:]}"):
        assert made.name in listed(client, transactional_id_pattern=pattern)


def test_a_pattern_that_would_take_others_for_ever(client):
    made = TxnProducer(client, "a" * 50 + unique("b"))
    made.start()
    assert made.name not in listed(client, transactional_id_pattern="(a+)+c")
