"""ElectLeaders (key 43): gives partitions back to their preferred leader, or to any replica that is alive.

Speaks v0 to v2; v0 knows preferred elections only. Null partitions mean all, and then those that need no election are
left out of the answer (KIP-460). Only the controller answers (NOT_CONTROLLER). A broker alone leads what it can
already: ELECTION_NOT_NEEDED; or its disk is broken: PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.dispatch import Reply
from headrace.broker.handlers._control import by_topic, code_and_message, controller_of, partitions_of, within
from headrace.broker.handlers._waiting import milliseconds
from headrace.broker.request import Request
from headrace.controller.decisions import Election
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import InvalidRequest, KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

_ELECTIONS = {0: Election.PREFERRED, 1: Election.UNCLEAN}


async def handle(request: Request, broker: Broker) -> Reply:
    body = request.body
    wanted = None
    if body.topic_partitions is not None:
        wanted = partitions_of((topic.topic, topic.partitions) for topic in body.topic_partitions)
    try:
        outcomes = await within(
            milliseconds(body.timeout), controller_of(broker).elect_leaders(wanted, _election(body))
        )
    except KafkaError as error:
        # v0 has no place for an error of the whole request.
        return {"error_code": error.code, "replica_election_results": _results(dict.fromkeys(wanted or (), error))}
    return {"replica_election_results": _results(outcomes)}


def _election(body: Any) -> Election:
    number = getattr(body, "election_type", 0)
    if number not in _ELECTIONS:
        raise InvalidRequest(f"there is no election of type {number}")
    return _ELECTIONS[number]


def _results(outcomes: Mapping[TopicPartition, KafkaError | None]) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic,
            "partition_result": [{"partition_id": index, **code_and_message(error)} for index, error in partitions],
        }
        for topic, partitions in by_topic(outcomes).items()
    ]
