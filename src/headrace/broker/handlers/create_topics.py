"""CreateTopics (key 19): creates topics with their settings, or only checks whether they could be created.

Speaks v2 to v7. Each topic succeeds or fails alone; a topic that is named twice in a request fails. A request may ask
for 10,000 partitions in all, as in Kafka (POLICY_VIOLATION). In a cluster every broker answers; Apache Kafka on
ZooKeeper answers on the controller only (NOT_CONTROLLER). The answer comes when all partitions have leaders. A topic
that needs longer than the request's timeout is created all the same, and is answered with REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import allowed_topics, is_allowed_on_cluster
from headrace.broker.configs import resources
from headrace.broker.configs.describe import describe_resource
from headrace.broker.handlers._topic_changes import check_new_partitions, wait_until_complete
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.broker.network.slices import Repeated, in_groups
from headrace.controller.topic_rules import NewTopic
from headrace.protocol.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidRequest,
    TopicAuthorizationFailed,
    code_for_errors,
)
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.quotas.controller_mutations import ControllerMutations, MutationQuota
    from headrace.broker.topics import Topics

_DEFAULT = -1
_THROTTLING_ERROR_SINCE = 6

#: The answer for a topic that the client may create, but whose settings the client may not see.
_HIDDEN = {
    "topic_config_error_code": ErrorCode.topic_authorization_failed,
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": (),
}


async def handle(
    request: Request,
    authorizer: Authorizer,
    config: BrokerConfig,
    topics: Topics,
    controller_mutations: ControllerMutations,
) -> Reply:
    body = request.body
    repeated = await request.slices.repeated(body.topics, lambda topic: topic.name)
    quota = controller_mutations.quota_of(request, strict_since=_THROTTLING_ERROR_SINCE)
    creating = _Creating(_Rights(authorizer, request), config, topics, quota, body.validate_only, repeated)
    async for topic in request.slices.over(body.topics):
        creating.count(topic)
    answers = request.collect(body.topics, "topics")
    made: list[dict[str, Any]] = []
    at_a_time = topics.created_together
    async for group in request.slices.over(in_groups(body.topics, at_a_time)):
        creations = (creating.create(topic) for topic in group if not repeated.was_met_before(topic.name))
        for answer in await gather(*creations) if at_a_time > 1 else [await creation for creation in creations]:
            is_made = "error_code" not in answer and not body.validate_only
            answers.add(answer, may_change=is_made)
            if is_made:
                made.append(answer)
    if made:
        counts = {answer["name"]: creating.partition_counts[answer["name"]] for answer in made}
        await wait_until_complete(topics, made, partition_counts=counts, timeout_ms=milliseconds(body.timeout))
    quota.throttle(request)
    return {"topics": answers}


class _Rights:
    """The rights of the client on the topics of one request."""

    def __init__(self, authorizer: Authorizer, request: Request) -> None:
        connection = request.connection
        self._may_create_all = is_allowed_on_cluster(authorizer, connection, AclOperation.CREATE, log_denied=False)
        self._may_create = allowed_topics(authorizer, connection, AclOperation.CREATE)
        self.may_describe_configs = allowed_topics(
            authorizer, connection, AclOperation.DESCRIBE_CONFIGS, log_denied=False
        )

    def may_create(self, topic: str) -> bool:
        return self._may_create_all or self._may_create(topic)


class _Creating:
    """Makes the topics of one request."""

    def __init__(
        self,
        rights: _Rights,
        config: BrokerConfig,
        topics: Topics,
        quota: MutationQuota,
        validate_only: bool,
        repeated: Repeated,
    ) -> None:
        self._rights = rights
        self._config = config
        self._topics = topics
        self._quota = quota
        self._validate_only = validate_only
        self._repeated = repeated
        self._partitions = 0
        #: The number of partitions of each topic that was made.
        self.partition_counts: dict[str, int] = {}
        #: The described settings, by the settings of a topic: most topics of a request have the same, or none.
        self._described: dict[frozenset[tuple[str, str]], list[dict[str, object]]] = {}

    def count(self, topic: Any) -> None:
        """Counts the partitions of the whole request."""
        default = self._config.int("num.partitions")
        self._partitions += len(topic.assignments) or (default if topic.num_partitions < 0 else topic.num_partitions)

    async def create(self, topic: Any) -> dict[str, Any]:
        with code_for_errors(name=topic.name, configs=()) as answer:
            check_new_partitions(self._partitions)
            if topic.name in self._repeated:
                raise InvalidRequest(f"topic {topic.name!r} is named more than once in the request")
            if not self._rights.may_create(topic.name):
                raise TopicAuthorizationFailed("Authorization failed.")
            self._topics.check_name(topic.name)
            new = _read(topic)
            if self._quota and not self._validate_only:  # a topic that cannot be created takes no tokens
                checked = await self._topics.create(new, validate_only=True)
                self._quota.take(len(checked.assignment))
            created = await self._topics.create(new, validate_only=self._validate_only)
            self.partition_counts[topic.name] = len(created.assignment)
            answer["topic_id"] = None if self._validate_only else created.topic_id
            if not self._rights.may_describe_configs(topic.name):
                answer.update(_HIDDEN)
                return answer
            answer.update(
                num_partitions=len(created.assignment),
                replication_factor=len(created.assignment[0]),
                configs=self._describe(created.configs),
            )
        return answer

    def _describe(self, configs: Mapping[str, str]) -> list[dict[str, object]]:
        key = frozenset(configs.items())
        if key not in self._described:
            self._described[key] = describe_resource(resources.TOPIC, configs, self._config)
        return self._described[key]


def _read(topic: Any) -> NewTopic:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"config {config.name!r} of topic {topic.name!r} has no value")
        if config.name in configs:
            raise InvalidRequest(f"config {config.name!r} of topic {topic.name!r} is given twice")
        configs[config.name] = config.value
    assignment = {given.partition_index: tuple(given.broker_ids) for given in topic.assignments}
    if len(assignment) != len(topic.assignments):
        raise InvalidReplicaAssignment(f"a partition of topic {topic.name!r} is assigned twice")
    if assignment and (topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT):
        raise InvalidRequest("give either an assignment, or a number of partitions and a replication factor, not both")
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignment, configs)
