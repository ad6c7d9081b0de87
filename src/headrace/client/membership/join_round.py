"""Joins a classic group once: JoinGroup, the assignment if this member is the leader, and SyncGroup.

The coordinator answers JoinGroup when all members have joined, or when their time is over. The leader gets the
subscriptions of all members, and sends the assignment of all members with its SyncGroup. A new member first gets its
member id, and joins again with it (KIP-394). The requests go over a connection of their own. A broker answers the
requests of a connection in order, and a member that reads on during a rebalance must be able to commit before all
members have joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLogger
from typing import Any, NamedTuple, Protocol

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.errors import ErrorCode, HeadraceError
from headrace.client.membership.assignors import ASSIGNORS, Assignor, Rebalance, member_from, user_data_for
from headrace.client.membership.group_metrics import GroupMetrics
from headrace.client.membership.interfaces import GroupSubscription
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
#: The coordinator may answer only when the rebalance timeout is over. This is the additional time for the answer.
_ANSWER_TIME_MS = 5_000

#: The partitions that a member had, and their generation.
LastAssignment = tuple[frozenset[TopicPartition], int]


class Joined(NamedTuple):
    """The result of joining: the assignment of this member."""

    generation: int
    partitions: frozenset[TopicPartition]
    #: The partition counts that the assignment is based on; None if this member is not the leader.
    counts: Mapping[str, int] | None


class JoiningMember(Protocol):
    """The member that joins. It keeps the member id that it gets, even if joining fails."""

    member_id: str
    generation: int


class JoinRound:
    """Joins the group of one consumer."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, subscription: GroupSubscription, metrics: GroupMetrics
    ) -> None:
        """
        :raises ValueError: if ``partition.assignment.strategy`` has an unknown assignor.
        """
        assert config.group_id is not None
        self._cluster = cluster
        self._config = config
        self._group_id = config.group_id
        self._group_subscription = subscription
        self._metrics = metrics
        self._assignors = _assignors(config.partition_assignment_strategy)
        self.is_cooperative = all(one.rebalance is Rebalance.COOPERATIVE for one in self._assignors)

    async def join(
        self, member: JoiningMember, topics: frozenset[str], last_assignment: LastAssignment, reason: str
    ) -> tuple[ErrorCode, Joined | None]:
        """Joins, and returns an error code or the assignment.

        :param last_assignment: for the assignor "sticky", because an eager member owns nothing when it joins.
        :param reason: for the broker's log.
        """
        protocols: list[dict[str, object]] = [
            {"name": one.name, "metadata": self._encoded_subscription(one, member.generation, topics, last_assignment)}
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

    def _encoded_subscription(
        self, assignor: Assignor, generation: int, topics: frozenset[str], last_assignment: LastAssignment
    ) -> bytes:
        return encode_subscription(
            Subscription(
                topics=tuple(topics),
                user_data=user_data_for(assignor.name, *last_assignment),
                owned=tuple(self._group_subscription.assignment()),
                generation=generation,
                rack_id=self._config.client_rack or None,
            )
        )

    async def _ask_join(self, member_id: str, protocols: list[dict[str, object]], reason: str) -> Any:
        config = self._config
        return await self._ask(
            Api.JOIN_GROUP,
            config.max_poll_interval_ms + _ANSWER_TIME_MS,
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
            self._config.max_poll_interval_ms + _ANSWER_TIME_MS,
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
            raise HeadraceError(
                f"the assignment from the leader of the group {self._group_id!r} cannot be read: {error}"
            ) from error
        return ErrorCode.none, Joined(generation, partitions, counts)

    async def _assign_all(self, joined: Any) -> tuple[dict[str, int], list[dict[str, object]]]:
        """Computes the assignment of all members, as the leader of the group."""
        name: str = joined.protocol_name
        try:
            members = {
                one.member_id: member_from(
                    name, decode_subscription(bytes(one.metadata)), getattr(one, "group_instance_id", None)
                )
                for one in joined.members
            }
        except Unreadable as error:
            raise HeadraceError(
                f"the subscription of a member of the group {self._group_id!r} cannot be read: {error}"
            ) from error
        topics = {topic for member in members.values() for topic in member.topics}
        counts = await self._group_subscription.partition_counts(topics)
        if getattr(joined, "skip_assignment", False):
            return counts, []
        found = ASSIGNORS[name].assign(members, counts)
        logger.debug("assignment of the group %r: %s", self._group_id, found)
        return counts, [
            {"member_id": member_id, "assignment": encode_assignment(Assignment(tuple(partitions)))}
            for member_id, partitions in found.items()
        ]

    async def _ask(self, api: Api, timeout_ms: float, **fields: Any) -> Any:
        connection = await self._cluster.coordinator("group", self._group_id, purpose="join")
        with self._metrics.timed("join" if api is Api.JOIN_GROUP else "sync"):
            return await connection.ask(api, timeout_ms=timeout_ms, group_id=self._group_id, **fields)


def _assignors(names: tuple[str, ...]) -> list[Assignor]:
    return [ASSIGNORS[name] for name in dict.fromkeys(names)]
