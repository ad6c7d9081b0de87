"""ElectLeaders, asked of a broker alone; what a cluster's controller decides is tested with the controller."""

import pytest
from broker_harness import all_versions, unique

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

PREFERRED, UNCLEAN = 0, 1


def elect(client, partitions, kind=PREFERRED, version=2):
    wanted = partitions
    if partitions is not None:
        wanted = [{"topic": topic, "partitions": indexes} for topic, indexes in partitions.items()]
    fields = {"election_type": kind} if version else {}
    answer = client.ask(Api.ELECT_LEADERS, version, topic_partitions=wanted, timeout=10_000, **fields)
    outcomes = {
        (topic.topic, found.partition_id): (found.error_code, found.error_message)
        for topic in answer.replica_election_results
        for found in topic.partition_result
    }
    return getattr(answer, "error_code", ErrorCode.none), outcomes


@pytest.mark.parametrize("version", all_versions(Api.ELECT_LEADERS))
def test_who_leads_need_not_be_elected(client, topic, version):
    error, outcomes = elect(client, {topic: [0]}, version=version)
    assert error == 0
    assert outcomes[topic, 0][0] == ErrorCode.election_not_needed


def test_nor_at_any_price(client, topic):
    _, outcomes = elect(client, {topic: [0]}, UNCLEAN)
    assert outcomes[topic, 0][0] == ErrorCode.election_not_needed


def test_of_all_partitions_those_that_need_none_are_not_named(client, topic):
    error, outcomes = elect(client, None)
    assert error == 0
    assert (topic, 0) not in outcomes


def test_partitions_that_are_not_there(client, topic):
    nowhere = unique()
    _, outcomes = elect(client, {topic: [0, 99], nowhere: [0]})
    assert outcomes[topic, 99][0] == ErrorCode.unknown_topic_or_partition
    assert outcomes[nowhere, 0][0] == ErrorCode.unknown_topic_or_partition
    assert outcomes[nowhere, 0][1]


def test_a_type_that_is_not_there(client, topic, ours):
    error, outcomes = elect(client, {topic: [0]}, kind=7)
    assert error == ErrorCode.invalid_request
    assert outcomes[topic, 0] == (
        ErrorCode.invalid_request,
        "unknown election type 7; use 0 (preferred) or 1 (unclean)",
    )
