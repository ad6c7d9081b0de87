"""One round of a classic group: JoinGroup, the leader's assignment if that is us, SyncGroup.

The broker answers a join when all members have joined, or their time to is up; then the leader gets the subscriptions
of all, and sends everybody's assignment with its SyncGroup. A member that is new is first given its id, and joins again
with it (KIP-394). All of it goes over a connection of its own: a broker answers a connection in order, and nobody who
goes on reading during a rebalance shall wait with his commits until everybody has joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLogger
from typing import Any, NamedTuple, Protocol

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.errors import ErrorCode, HeadraceError
from headrace.client.membership.assignors import ASSIGNORS, Assignor, Rebalance, member_from, user_data_for
from headrace.client.membership.interfaces import GroupHost
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.wire.consumer_protocol import (
    Assignment,
    Subscription,
    Unreadable,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

logger = getLogger(__name__)

_PROTOCOL_TYPE = "consumer"
#: A broker answers a join late, when the others have joined too; then the answer needs time to come.
_GRACE_MS = 5_000

#: What a member had, and in which generation.
Remembered = tuple[frozenset[TopicPartition], int]


class Joined(NamedTuple):
    generation: int
    partitions: frozenset[TopicPartition]
    #: What the leader assigned by; none if we are not the leader.
    counts: Mapping[str, int] | None


class Joining(Protocol):
    """Who joins. It keeps the id that it is given even if the round comes to nothing."""

    member_id: str
    generation: int


class JoinRound:
    def __init__(self, cluster: Cluster, config: ConsumerConfig, host: GroupHost) -> None:
        """
        :raises ValueError: if the config names assignors that there are not.
        """
        assert config.group_id is not None
        self._cluster = cluster
        self._config = config
        self._group_id = config.group_id
        self._host = host
        self._assignors = _assignors(config.partition_assignment_strategy)
        self.is_cooperative = all(one.rebalance is Rebalance.COOPERATIVE for one in self._assignors)

    async def join(
        self, member: Joining, topics: frozenset[str], remembered: Remembered, reason: str
    ) -> tuple[ErrorCode, Joined | None]:
        """
        :param remembered: what "sticky" tells the leader, since an eager member owns nothing when it joins.
        """
        protocols: list[dict[str, object]] = [
            {"name": one.name, "metadata": self._subscription(one, member.generation, topics, remembered)}
            for one in self._assignors
        ]
        answer = await self._ask_join(member.member_id, protocols, reason)
        if answer.error_code is ErrorCode.member_id_required:
            member.member_id = answer.member_id
            answer = await self._ask_join(member.member_id, protocols, reason)
        if answer.error_code is not ErrorCode.none:
            return ErrorCode(answer.error_code), None
        member.member_id = answer.member_id
        return await self._sync(answer)

    def _subscription(
        self, assignor: Assignor, generation: int, topics: frozenset[str], remembered: Remembered
    ) -> bytes:
        return encode_subscription(
            Subscription(
                topics=tuple(topics),
                user_data=user_data_for(assignor.name, *remembered),
                owned=tuple(self._host.assignment()),
                generation=generation,
                rack_id=self._config.client_rack or None,
            )
        )

    async def _ask_join(self, member_id: str, protocols: list[dict[str, object]], reason: str) -> Any:
        config = self._config
        return await self._ask(
            Api.JOIN_GROUP,
            config.max_poll_interval_ms + _GRACE_MS,
            session_timeout=config.session_timeout_ms,
            rebalance_timeout=config.max_poll_interval_ms,
            member_id=member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=protocols,
            reason=reason,
        )

    async def _sync(self, joined: Any) -> tuple[ErrorCode, Joined | None]:
        counts: dict[str, int] | None = None
        assignments: list[dict[str, object]] = []
        if joined.leader == joined.member_id:
            counts, assignments = await self._assign_all(joined)
        generation = int(joined.generation_id)
        answer = await self._ask(
            Api.SYNC_GROUP,
            self._config.max_poll_interval_ms + _GRACE_MS,
            generation_id=generation,
            member_id=joined.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        if answer.error_code is not ErrorCode.none:
            return ErrorCode(answer.error_code), None
        try:
            partitions = frozenset(decode_assignment(bytes(answer.assignment)).partitions)
        except Unreadable as error:
            raise HeadraceError(f"the leader of the group {self._group_id!r} sent no assignment: {error}") from error
        return ErrorCode.none, Joined(generation, partitions, counts)

    async def _assign_all(self, joined: Any) -> tuple[dict[str, int], list[dict[str, object]]]:
        """What the leader does: gives each member its partitions."""
        name: str = joined.protocol_name
        try:
            members = {
                one.member_id: member_from(
                    name, decode_subscription(bytes(one.metadata)), getattr(one, "group_instance_id", None)
                )
                for one in joined.members
            }
        except Unreadable as error:
            raise HeadraceError(f"a member of the group {self._group_id!r} sent no subscription: {error}") from error
        topics = {topic for member in members.values() for topic in member.topics}
        counts = await self._host.partition_counts(topics)
        if getattr(joined, "skip_assignment", False):
            return counts, []
        found = ASSIGNORS[name].assign(members, counts)
        logger.debug("the group %r: %s", self._group_id, found)
        return counts, [
            {"member_id": member_id, "assignment": encode_assignment(Assignment(tuple(partitions)))}
            for member_id, partitions in found.items()
        ]

    async def _ask(self, api: Api, timeout_ms: float, **fields: Any) -> Any:
        connection = await self._cluster.coordinator("group", self._group_id, purpose="join")
        return await connection.ask(api, timeout_ms=timeout_ms, group_id=self._group_id, **fields)


def _assignors(names: tuple[str, ...]) -> list[Assignor]:
    return [ASSIGNORS[name] for name in dict.fromkeys(names)]
