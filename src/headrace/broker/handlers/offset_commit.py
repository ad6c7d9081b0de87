"""OffsetCommit (key 8): how far a group has read, to be found again by OffsetFetch.

Speaks v2 to v10; from v10 on topics are named by their ids. In v2 to v4 a client may say for how long its offsets are
to be kept. Whoever is no member (generation -1, no member id) may commit while the group has no members. A group that
is not there, of a member: GROUP_ID_NOT_FOUND, before v9 ILLEGAL_GENERATION. A group may have an empty name here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.broker.handlers._commits import Commits
from headrace.broker.network.request import Reply, Request
from headrace.groups.committed_offsets import NO_EXPIRY, TopicCommit
from headrace.groups.committing import Committer, commit

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.runtime.clock import Clock

_TOPIC_IDS = 10
_MS = timedelta(milliseconds=1)
_DEFAULT_RETENTION_MS = -1


async def handle(
    request: Request, config: BrokerConfig, clock: Clock, metadata: MetadataCache, groups: GroupService
) -> Reply:
    body, version = request.body, request.version
    instance_id = getattr(body, "group_instance_id", None)
    who = Committer(body.group_id, body.member_id, body.generation_id_or_member_epoch, instance_id)
    commits = Commits(request, metadata, config, by_id=version >= _TOPIC_IDS)
    expires_ms = _expire_timestamp_ms(clock, getattr(body, "retention_time", None))

    async def make(possible: list[TopicCommit]) -> None:
        shard = groups.coordinator.shard_for(who.group_id)
        commit(shard, who, possible, version=version, expire_timestamp_ms=expires_ms)
        await groups.replicated(who.group_id)

    return {"topics": await commits.answer(make)}


def _expire_timestamp_ms(clock: Clock, retention: timedelta | None) -> int:
    retention_ms = _DEFAULT_RETENTION_MS if retention is None else retention // _MS
    return NO_EXPIRY if retention_ms == _DEFAULT_RETENTION_MS else clock.wall_ms() + retention_ms
