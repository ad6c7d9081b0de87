"""CreateTopics (key 19): new topics, with their configs, or only a check whether they could be.

Speaks v2 to v7. Each topic succeeds or fails alone; one that is named twice in a request fails. In a cluster
any broker may be asked, where a Kafka on ZooKeeper wants it to be the controller (NOT_CONTROLLER). It answers when all
partitions have leaders; what takes longer than the request's timeout comes about all the same, and is answered with
REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from asyncio import gather
from typing import TYPE_CHECKING, Any

from headrace.broker.dispatch import Reply
from headrace.broker.handlers._topic_changes import settle
from headrace.broker.handlers._waiting import milliseconds
from headrace.broker.request import Request
from headrace.broker.slices import in_groups
from headrace.controller.topics import NewTopic
from headrace.protocol.errors import InvalidConfig, InvalidReplicaAssignment, InvalidRequest, code_for_errors

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

_DEFAULT = -1
_SIDE_BY_SIDE = 500


async def handle(request: Request, broker: Broker) -> Reply:
    body = request.body
    repeated = await request.slices.repeated(body.topics, lambda topic: topic.name)
    answers = request.collect(body.topics, "topics")
    made: list[dict[str, Any]] = []
    # In a cluster topics are written side by side, so that the controller is told of many at once.
    at_a_time = 1 if broker.cluster is None else _SIDE_BY_SIDE
    async for topics in request.slices.over(in_groups(body.topics, at_a_time)):
        creations = (
            _create(broker, topic, body.validate_only, is_twice=topic.name in repeated)
            for topic in topics
            if not repeated.was_met_before(topic.name)
        )
        for answer in await gather(*creations) if at_a_time > 1 else [await creation for creation in creations]:
            is_made = "num_partitions" in answer
            answers.add(answer, may_change=is_made)
            if is_made:
                made.append(answer)
    if not body.validate_only:
        counts = {answer["name"]: answer["num_partitions"] for answer in made}
        await settle(broker, made, made=counts, timeout_ms=milliseconds(body.timeout))
    return {"topics": answers}


async def _create(broker: Broker, topic: Any, validate_only: bool, *, is_twice: bool) -> dict[str, Any]:
    with code_for_errors(name=topic.name) as answer:
        if is_twice:
            raise InvalidRequest(f"topic {topic.name!r} is named more than once in the request")
        broker.topics.check_name(topic.name)
        created = await broker.topics.create(_read(topic), validate_only=validate_only)
        answer.update(
            topic_id=None if validate_only else created.topic_id,
            num_partitions=len(created.assignment),
            replication_factor=len(created.assignment[0]),
            configs=broker.describe_topic_config(created.configs),
        )
    return answer


def _read(topic: Any) -> NewTopic:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"config {config.name!r} has no value")
        if config.name in configs:
            raise InvalidRequest(f"config {config.name!r} is given twice")
        configs[config.name] = config.value
    assignment = {given.partition_index: tuple(given.broker_ids) for given in topic.assignments}
    if len(assignment) != len(topic.assignments):
        raise InvalidReplicaAssignment("a partition is assigned twice")
    if assignment and (topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT):
        raise InvalidRequest("give either an assignment, or a number of partitions and a replication factor")
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignment, configs)
