"""AlterClientQuotas (key 49): sets and removes client quotas.

Speaks v0 and v1. Each entity succeeds or fails alone; an entity with an error keeps its quotas. Bad entities, keys and
limits get INVALID_REQUEST, and so does an entity or a key that the request names twice. Any broker writes to the tree,
not only the controller. When the answer comes, the quotas are stored, and in force on this broker. The other brokers
apply them when ZooKeeper has told them. A request may change 10,000 entities, as in Kafka. Needs ALTER_CONFIGS on the
cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.network.request import Reply, Request
from headrace.broker.network.slices import Answers
from headrace.broker.quotas.entities import Entity, entity_of
from headrace.protocol.errors import InvalidRequest, KafkaError, PolicyViolation, code_for_errors
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.quotas.stored_quotas import StoredQuotas

#: The most entities that one request may change.
MOST_AT_ONCE = 10_000
#: The types and names of an entity that an answer repeats. There are three types; more than that is an error.
_MOST_PARTS = 10

#: The types and names of an entity, as in the request.
_Parts = tuple[tuple[str, str | None], ...]


async def handle(request: Request, authorizer: Authorizer, stored_quotas: StoredQuotas) -> Reply:
    asked = request.body.entries
    try:
        check_cluster(authorizer, request.connection, AclOperation.ALTER_CONFIGS)
        if len(asked) > MOST_AT_ONCE:
            raise PolicyViolation(f"{len(asked)} entities in one request; at most {MOST_AT_ONCE} are possible")
    except KafkaError as error:
        failure = {"error_code": error.code, "error_message": str(error)}
        answers = await request.answers(asked, lambda each: _answer_for(_parts(each)) | failure, "entries")
        return {"entries": answers}
    repeated = await request.slices.repeated(asked, lambda each: frozenset(_parts(each)))
    entries = Answers(request.answer_encoder("entries"))
    async for each in request.slices.over(asked):
        parts = _parts(each)
        is_repeated = frozenset(parts) in repeated
        if repeated.was_met_before(frozenset(parts)):
            continue
        with code_for_errors(**_answer_for(parts)) as answer:
            entity = entity_of((part.entity_type, part.entity_name) for part in each.entity)
            if is_repeated:
                raise InvalidRequest(f"Ignoring duplicate entity {entity}")
            await _alter(request, stored_quotas, entity, each.ops)
        entries.add(answer)
    return {"entries": entries}


async def _alter(request: Request, stored: StoredQuotas, entity: Entity, ops: Sequence[Any]) -> None:
    changes: dict[str, float | None] = {}
    async for op in request.slices.over(ops):
        if op.key in changes:
            raise InvalidRequest(f"Duplicate quota key {op.key} not updating quota for this entity {entity}")
        changes[op.key] = None if op.remove else op.value
    await stored.check(entity, changes)
    if not request.body.validate_only:
        await stored.change(entity, changes)


def _parts(asked: Any) -> _Parts:
    return tuple((part.entity_type, part.entity_name) for part in islice(asked.entity, _MOST_PARTS))


def _answer_for(parts: _Parts) -> dict[str, object]:
    entity = [{"entity_type": kind, "entity_name": name} for kind, name in parts]
    return {"error_code": 0, "error_message": None, "entity": entity}
