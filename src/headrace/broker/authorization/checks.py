"""The questions that handlers ask an authorizer, as exceptions with the error codes and messages of Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.authorization.authorizer import AllowAll
from headrace.protocol.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from headrace.security.acls import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer, Requester

#: The error of each type of resource, and its message.
_FAILURES: dict[ResourceType, tuple[type[KafkaError], str]] = {
    ResourceType.TOPIC: (TopicAuthorizationFailed, "Topic authorization failed."),
    ResourceType.GROUP: (GroupAuthorizationFailed, "Group authorization failed."),
    ResourceType.CLUSTER: (ClusterAuthorizationFailed, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        TransactionalIdAuthorizationFailed,
        "Transactional Id authorization failed.",
    ),
}


#: The number of topics of one request whose decisions are kept: a request may name a million.
_MOST_KEPT = 1_000


def authorization_failed(resource_type: ResourceType) -> KafkaError:
    """Returns the error of a client that may not use a resource."""
    error, message = _FAILURES[resource_type]
    return error(message)


def check(
    authorizer: Authorizer, connection: Requester, operation: AclOperation, resource_type: ResourceType, name: str
) -> None:
    """
    :raises KafkaError: if the client may not do the operation: the error of the resource's type.
    """
    if not authorizer.is_allowed(connection, operation, resource_type, name):
        raise authorization_failed(resource_type)


def is_allowed_on_cluster(
    authorizer: Authorizer, connection: Requester, operation: AclOperation, *, log_denied: bool = True
) -> bool:
    """Decides about an operation on the cluster itself."""
    return authorizer.is_allowed(connection, operation, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=log_denied)


def check_cluster(authorizer: Authorizer, connection: Requester, operation: AclOperation) -> None:
    """
    :raises ClusterAuthorizationFailed: if the client may not do the operation on the cluster itself.
    """
    check(authorizer, connection, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def _every_topic(_topic: str) -> bool:
    return True


def allowed_topics(
    authorizer: Authorizer, connection: Requester, operation: AclOperation, *, log_denied: bool = True
) -> Callable[[str], bool]:
    """Returns a function that decides about the topics of one request. It asks once per topic, if there are few."""
    if type(authorizer) is AllowAll:
        return _every_topic
    known: dict[str, bool] = {}

    def is_allowed(topic: str) -> bool:
        decision = known.get(topic)
        if decision is None:
            decision = authorizer.is_allowed(connection, operation, ResourceType.TOPIC, topic, log_denied=log_denied)
            if len(known) < _MOST_KEPT:
                known[topic] = decision
        return decision

    return is_allowed
