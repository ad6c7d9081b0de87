"""OffsetCommit (key 8): stores the offsets up to which a group has read. OffsetFetch reads them.

Speaks v2 to v10; from v10 on topics are given by their ids. In v2 to v4 a client may say how long its offsets are kept.
A client that is not a member (generation -1, no member id) may commit while the group has no members. If a member
commits for a group that does not exist, the answer is GROUP_ID_NOT_FOUND, before v9 ILLEGAL_GENERATION. The id of the
group may be empty here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.broker.handlers._commits import Commits, refused_commit
from headrace.broker.network.request import Reply, Request
from headrace.groups.committed_offsets import NO_EXPIRY, TopicCommit
from headrace.groups.committing import Committer, commit
from headrace.protocol.errors import ErrorCode
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.runtime.clock import Clock

_TOPIC_IDS_SINCE = 10
_MS = timedelta(milliseconds=1)
_DEFAULT_RETENTION_MS = -1


async def handle(
    request: Request,
    authorizer: Authorizer,
    config: BrokerConfig,
    clock: Clock,
    metadata: MetadataCache,
    groups: GroupService,
) -> Reply:
    body, version = request.body, request.version
    if not authorizer.is_allowed(request.connection, AclOperation.READ, ResourceType.GROUP, body.group_id):
        return {"topics": refused_commit(request, ErrorCode.group_authorization_failed)}
    instance_id = getattr(body, "group_instance_id", None)
    committer = Committer(body.group_id, body.member_id, body.generation_id_or_member_epoch, instance_id)
    commits = Commits(request, authorizer, metadata, config, by_id=version >= _TOPIC_IDS_SINCE)
    expires_ms = _expire_timestamp_ms(clock, getattr(body, "retention_time", None))

    async def make(possible: list[TopicCommit]) -> None:
        shard = groups.coordinator.shard_for(committer.group_id)
        commit(shard, committer, possible, version=version, expire_timestamp_ms=expires_ms)
        await groups.replicated(committer.group_id)

    return {"topics": await commits.answer(make)}


def _expire_timestamp_ms(clock: Clock, retention: timedelta | None) -> int:
    retention_ms = _DEFAULT_RETENTION_MS if retention is None else retention // _MS
    return NO_EXPIRY if retention_ms == _DEFAULT_RETENTION_MS else clock.wall_ms() + retention_ms
