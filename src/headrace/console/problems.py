"""Holds the console's errors, and explains those of the cluster: a name, a sentence, and what to do next.

``ADVICE`` is the table of Kafka's errors that a visitor can do something about. The console keeps its own errors and
those of the cluster apart: the first are 4xx, the second mostly 502 and 503, so that a script knows whom to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokerUnreachable,
    HeadraceError,
    KafkaTimeout,
)


class ConsoleError(Exception):
    """A request that the console does not answer with a page. ``status`` is HTTP's."""

    status = 400
    name = "bad_request"
    advice = ""


class NotFound(ConsoleError):
    """There is no such page, or the thing that it is about does not exist."""

    status = 404
    name = "not_found"
    advice = "Go back to the list, and choose one that exists."


class Refused(ConsoleError):
    """The console's protection does not allow the request."""

    status = 403
    name = "refused"


class ReadOnly(Refused):
    """A change was asked of a console that only reads."""

    name = "read_only"
    advice = "Start the console without --read-only, or run the command line that the form shows."

    def __init__(self) -> None:
        super().__init__("this console was started with --read-only, so it changes nothing")


class TooMany(ConsoleError):
    """The console does as much as it may at once."""

    status = 429
    name = "too_many"
    advice = "Wait until other requests have ended, or close other pages."


class NeedsLogin(ConsoleError):
    """The cluster wants to know who asks."""

    status = 401
    name = "login_needed"
    advice = "Log in with a user of the cluster."

    def __init__(self) -> None:
        super().__init__("this console asks for a user of the cluster")


class BadFields(ConsoleError):
    """Values that were given are not usable.

    :ivar problems: what is wrong, by the name of the field.
    :ivar given: the texts as they were given, so that a form can show them again.
    """

    status = 422
    name = "bad_fields"
    advice = "Correct the values, and try again."

    def __init__(self, problems: Mapping[str, str], given: Mapping[str, str] | None = None) -> None:
        super().__init__("; ".join(f"{name}: {problem}" for name, problem in problems.items()))
        self.problems = dict(problems)
        self.given = dict(given or {})


@dataclass(frozen=True)
class Problem:
    """An error as a page and a JSON answer show it."""

    status: int
    name: str
    message: str
    advice: str = ""


#: By the name of Kafka's error: the status of the answer, and what a visitor can do.
ADVICE: dict[str, tuple[int, str]] = {
    "unknown_topic_or_partition": (404, "Check the name. The topic may have been deleted, or you may not describe it."),
    "unknown_topic_id": (404, "The topic was deleted, perhaps created again. Open it from the list of topics."),
    "group_id_not_found": (404, "Check the name. Groups without members and offsets disappear."),
    "transactional_id_not_found": (404, "Check the id. Ids that no producer uses expire."),
    "resource_not_found": (404, "Check the name. The user may have been deleted."),
    "delegation_token_not_found": (404, "Check the id. The token may have expired."),
    "delegation_token_request_not_allowed": (409, "Tokens need a login: connect to the brokers by SASL."),
    "delegation_token_auth_disabled": (409, "Set delegation.token.secret.key on the brokers first."),
    "topic_already_exists": (409, "Choose another name, or open the topic that exists."),
    "non_empty_group": (409, "Stop the members of the group first."),
    "topic_authorization_failed": (403, "Ask an administrator for an ACL on the topic (headrace acls --add)."),
    "group_authorization_failed": (403, "Ask an administrator for an ACL on the group (headrace acls --add)."),
    "cluster_authorization_failed": (403, "Ask an administrator for an ACL on the cluster (headrace acls --add)."),
    "transactional_id_authorization_failed": (403, "Ask an administrator for an ACL on the transactional id."),
    "policy_violation": (422, "A policy of the cluster refuses this; the message says which."),
    "invalid_topic_exception": (422, "Use letters, digits, '.', '_' and '-', at most 249 of them."),
    "invalid_config": (422, "Correct the value of the setting."),
    "invalid_partitions": (422, "Give more partitions than the topic has; partitions cannot be taken away."),
    "invalid_replication_factor": (422, "Give at most as many replicas as there are brokers."),
    "invalid_replica_assignment": (422, "Give each partition brokers that exist."),
    "invalid_request": (422, "Correct the values; the message says what the broker does not accept."),
    "offset_out_of_range": (422, "Choose an offset between the first and the end offset of the partition."),
    "topic_deletion_disabled": (409, "Set delete.topic.enable=true on the brokers first."),
    "throttling_quota_exceeded": (429, "The quota for changes is used up. Try again in some seconds."),
    "security_disabled": (409, "The brokers run without an authorizer; set authorizer.class.name."),
    "unsupported_version": (501, "The brokers are too old for this. Upgrade them."),
    "leader_not_available": (503, "A leader is being elected. Try again in some seconds."),
    "not_controller": (503, "A controller is being elected. Try again in some seconds."),
    "coordinator_not_available": (503, "The coordinator is being elected. Try again in some seconds."),
    "request_timed_out": (504, "Other brokers did not answer in time. The change may still happen: reload."),
}
_FURTHER = "See the log of the broker."


def explain(error: HeadraceError | ConsoleError) -> Problem:
    """Explains an error to the visitor."""
    if isinstance(error, ConsoleError):
        return Problem(error.status, error.name, str(error), error.advice)
    if isinstance(error, BrokerError):
        name = error.code.name
        status, advice = ADVICE.get(name, (502, _FURTHER))
        return Problem(status, name, str(error), advice)
    if isinstance(error, AuthenticationFailed):
        return Problem(
            403, "authentication_failed", str(error), "Check user, password and the protocol of the brokers."
        )
    if isinstance(error, BrokerUnreachable):
        return Problem(503, "cluster_away", str(error), "Start the brokers, or check --bootstrap-server. Then reload.")
    if isinstance(error, KafkaTimeout):
        return Problem(504, "timeout", str(error), "The brokers are slow, or partly away. Reload to try again.")
    return Problem(502, "client_error", str(error), _FURTHER)
