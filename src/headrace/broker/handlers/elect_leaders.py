"""ElectLeaders (key 43): elects the preferred leader of partitions, or any live replica (an unclean election).

Speaks v0 to v2; v0 has preferred elections only. Null partitions mean all partitions; then the answer leaves out the
partitions that need no election (KIP-460). Only the controller answers (NOT_CONTROLLER). A broker that is not in a
cluster leads all its partitions already (ELECTION_NOT_NEEDED), unless their log dir failed
(PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.handlers._control import batches, by_topic, code_and_message, within
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.controller.decisions.leader_elections import ElectionStrategy
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.cluster_role import PartitionController

_ELECTIONS = {0: ElectionStrategy.PREFERRED, 1: ElectionStrategy.UNCLEAN}


async def handle(request: Request, authorizer: Authorizer, controller: PartitionController) -> Reply:
    body, code = request.body, ErrorCode.none
    timeout_ms, topics = milliseconds(body.timeout), body.topic_partitions
    results = request.collect(topics or (), "replica_election_results")
    named = ((topic.topic, index) for topic in topics or () for index in topic.partitions)
    async for wanted in request.slices.over([None] if topics is None else batches(topics, named)):
        outcomes: Mapping[TopicPartition, KafkaError | None]
        try:
            check_cluster(authorizer, request.connection, AclOperation.ALTER)
            outcomes = await within(timeout_ms, controller.elect_leaders(wanted, _election(body)))
        except KafkaError as error:
            # v0 has no field for an error of the whole request, so each partition gets the error.
            outcomes, code = dict.fromkeys(wanted or (), error), error.code
        for result in _results(outcomes):
            results.add(result)
    return {"error_code": code, "replica_election_results": results}


def _election(body: Any) -> ElectionStrategy:
    number = getattr(body, "election_type", 0)
    if number not in _ELECTIONS:
        raise InvalidRequest(f"unknown election type {number}; use 0 (preferred) or 1 (unclean)")
    return _ELECTIONS[number]


def _results(outcomes: Mapping[TopicPartition, KafkaError | None]) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic,
            "partition_result": [{"partition_id": index, **code_and_message(error)} for index, error in partitions],
        }
        for topic, partitions in by_topic(outcomes).items()
    ]
