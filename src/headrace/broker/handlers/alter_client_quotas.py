"""AlterClientQuotas (key 49): sets and removes client quotas.

Speaks v0 and v1. Each entity succeeds or fails alone; an entity with an error keeps its quotas. Bad entities, keys and
limits get INVALID_REQUEST, and so does an entity or a key that the request names twice. Any broker writes to the tree,
not only the controller. When the answer comes, the quotas are stored, and in force on this broker. The other brokers
apply them when ZooKeeper has told them. A request may change 10,000 entities, as in Kafka. Needs ALTER_CONFIGS on the
cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.network.request import Reply, Request
from headrace.broker.network.slices import in_groups
from headrace.broker.quotas.entities import Entity, entity_of, parts_of
from headrace.protocol.errors import ErrorCode, InvalidRequest, KafkaError, PolicyViolation
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.quotas.stored_quotas import StoredQuotas

#: The most entities that one request may change.
MOST_AT_ONCE = 10_000
#: How many entities are stored before other requests have their turn.
_STORED_TOGETHER = 50
#: The types and names of an entity that an answer repeats. There are three types; more than that is an error.
_MOST_PARTS = 10

#: The types and names of an entity, as in the request.
_Parts = tuple[tuple[str, str | None], ...]


@dataclass(slots=True)
class _Valid:
    """An entity whose changes can be made."""

    entity: Entity
    changes: Mapping[str, float | None]
    #: Why the changes were not stored.
    error: KafkaError | None = None


class _Invalid(NamedTuple):
    parts: _Parts
    error: KafkaError


async def handle(request: Request, authorizer: Authorizer, stored_quotas: StoredQuotas) -> Reply:
    asked = request.body.entries
    try:
        check_cluster(authorizer, request.connection, AclOperation.ALTER_CONFIGS)
        if len(asked) > MOST_AT_ONCE:
            raise PolicyViolation(f"{len(asked)} entities in one request; at most {MOST_AT_ONCE} are possible")
    except KafkaError as error:
        failure = error
        answers = await request.answers(asked, lambda each: _answer_for(_parts(each), failure), "entries")
        return {"entries": answers}
    entries = await _checked(request, stored_quotas)
    if not request.body.validate_only:
        valid = (entry for entry in entries if isinstance(entry, _Valid))
        async for group in request.slices.over(in_groups(valid, _STORED_TOGETHER)):
            errors = await stored_quotas.change({each.entity: each.changes for each in group})
            for each in group:
                each.error = errors.get(each.entity)
    return {"entries": await request.answers(entries, _answer, "entries")}


async def _checked(request: Request, stored: StoredQuotas) -> list[_Valid | _Invalid]:
    """Returns all entities of a request, each one once, in order."""
    asked = request.body.entries
    repeated = await request.slices.repeated(asked, _key)
    entries: list[_Valid | _Invalid] = []
    async for each in request.slices.over(asked):
        if repeated.was_met_before(_key(each)):
            continue
        try:
            entity = entity_of((part.entity_type, part.entity_name) for part in each.entity)
            if _key(each) in repeated:
                raise InvalidRequest(f"Ignoring duplicate entity {entity}")
            changes = await _changes(request, entity, each.ops)
            await stored.check(entity, changes)
            entries.append(_Valid(entity, changes))
        except KafkaError as error:
            entries.append(_Invalid(_parts(each), error))
    return entries


async def _changes(request: Request, entity: Entity, ops: Sequence[Any]) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    async for op in request.slices.over(ops):
        if op.key in changes:
            raise InvalidRequest(f"Duplicate quota key {op.key} not updating quota for this entity {entity}")
        changes[op.key] = None if op.remove else op.value
    return changes


def _key(asked: Any) -> frozenset[tuple[str, str | None]]:
    return frozenset(_parts(asked))


def _parts(asked: Any) -> _Parts:
    return tuple((part.entity_type, part.entity_name) for part in islice(asked.entity, _MOST_PARTS))


def _answer(entry: _Valid | _Invalid) -> dict[str, object]:
    parts = parts_of(entry.entity) if isinstance(entry, _Valid) else entry.parts
    return _answer_for(parts, entry.error)


def _answer_for(parts: Iterable[tuple[str, str | None]], error: KafkaError | None) -> dict[str, object]:
    return {
        "error_code": ErrorCode.none if error is None else error.code,
        "error_message": None if error is None else str(error),
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts],
    }
