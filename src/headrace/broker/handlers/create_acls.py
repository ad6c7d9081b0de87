"""CreateAcls (key 30): adds ACLs.

Speaks v1 to v3. Needs ALTER on the cluster. Each ACL succeeds or fails alone. When the answer comes, the ACLs are
stored in the tree, and in force on this broker. The other brokers apply them when ZooKeeper has told them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.handlers._acl_rules import check_count, read_rule
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import InvalidRequest, KafkaError
from headrace.security.acls import CLUSTER_NAME, AclBinding, AclOperation, ResourceType
from headrace.security.acls.bindings import AclEntry, AclPattern
from headrace.security.principal import Principal

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer


async def handle(request: Request, authorizer: Authorizer) -> Reply:
    asked = request.body.creations
    errors: dict[int, KafkaError] = {}
    rules: dict[AclPattern, dict[int, AclEntry]] = defaultdict(dict)
    try:
        check_cluster(authorizer, request.connection, AclOperation.ALTER)
        check_count(len(asked), "ACLs")
        authorizer.patterns()  # raises if there is no authorizer
    except KafkaError as error:
        answer = _result(error)
        return {"results": await request.answers(asked, lambda _: answer, "results")}
    async for number, each in request.slices.over(enumerate(asked)):
        rule = read_rule(each)
        try:
            _check(rule)
        except KafkaError as error:
            errors[number] = error
        else:
            rules[rule.pattern][number] = rule.entry
    async for pattern, entries in request.slices.over(rules.items()):
        try:
            await authorizer.add_rules(pattern, frozenset(entries.values()))
        except KafkaError as error:
            errors.update(dict.fromkeys(entries, error))
    numbers = range(len(asked))
    return {"results": await request.answers(numbers, lambda number: _result(errors.get(number)), "results")}


def _check(rule: AclBinding) -> None:
    """
    :raises InvalidRequest: if there can be no such rule.
    """
    pattern, entry = rule
    for kind in (pattern.resource_type, pattern.pattern_type, entry.operation, entry.permission):
        if not kind.is_concrete:
            raise InvalidRequest(f"an ACL cannot have the {_words(kind)} {kind.name}")
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidRequest(f"the only resource of the type CLUSTER is {CLUSTER_NAME!r}, not {pattern.name!r}")
    if not pattern.name:
        raise InvalidRequest("the name of the resource is empty")
    try:
        Principal.parse(entry.principal)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def _words(kind: Any) -> str:
    return {"ResourceType": "resource type", "PatternType": "pattern type", "AclOperation": "operation"}.get(
        type(kind).__name__, "permission"
    )


def _result(error: KafkaError | None) -> dict[str, object]:
    return {} if error is None else {"error_code": error.code, "error_message": str(error)}
