"""DeleteAcls (key 31): removes all ACLs that match one of the filters.

Speaks v1 to v3. Needs ALTER on the cluster. The answer has the removed ACLs of each filter. Other ACLs of the same
resources stay in force. The broker first reads what other brokers have changed until now, so that a client can remove
what it has just created on another broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.handlers._acl_rules import check_count, describe_entry, describe_pattern, read_filter
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import KafkaError
from headrace.security.acls import AclFilter, AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.security.acls.bindings import AclPattern


async def handle(request: Request, authorizer: Authorizer) -> Reply:
    asked = request.body.filters
    try:
        check_cluster(authorizer, request.connection, AclOperation.ALTER)
        check_count(len(asked), "filters of ACLs")
        filters = [read_filter(each) async for each in request.slices.over(asked)]
        await authorizer.catch_up()
        patterns = await _matching(request, authorizer, filters)
    except KafkaError as error:
        refusal = {"error_code": error.code, "error_message": str(error), "matching_acls": ()}
        return {"filter_results": await request.answers(asked, lambda _: refusal, "filter_results")}
    matching: list[list[dict[str, object]]] = [[] for _ in filters]
    async for pattern, numbers in request.slices.over(patterns):
        wanted = [filters[number] for number in numbers]
        for number, answers in zip(numbers, await _remove(authorizer, pattern, wanted), strict=True):
            matching[number] += answers
    return {"filter_results": [{"matching_acls": answers} for answers in matching]}


async def _matching(
    request: Request, authorizer: Authorizer, filters: Sequence[AclFilter]
) -> list[tuple[AclPattern, list[int]]]:
    """Returns the patterns that have rules to remove, each with the numbers of the filters that match the pattern.

    :raises PolicyViolation: if the answer would have too many rules.
    """
    found: list[tuple[AclPattern, list[int]]] = []
    count = 0
    async for pattern in request.slices.over(authorizer.patterns()):
        entries = authorizer.entries(pattern)
        numbers = []
        for number, each in enumerate(filters):
            if each.matches_pattern(pattern):
                matches = sum(map(each.matches_entry, entries))
                if matches:
                    numbers.append(number)
                    count += matches
        if numbers:
            found.append((pattern, numbers))
            check_count(count, "matching ACLs")
    return found


async def _remove(
    authorizer: Authorizer, pattern: AclPattern, wanted: Sequence[AclFilter]
) -> list[list[dict[str, object]]]:
    """Removes rules of one pattern, and returns the answers for each filter."""
    failure: dict[str, object] = {}
    try:
        removed = await authorizer.remove_rules(pattern, wanted)
    except KafkaError as error:
        removed, failure = authorizer.entries(pattern), {"error_code": error.code, "error_message": str(error)}
    described = describe_pattern(pattern)
    return [
        [{**described, **describe_entry(entry), **failure} for entry in sorted(removed) if each.matches_entry(entry)]
        for each in wanted
    ]
