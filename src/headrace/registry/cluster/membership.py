"""Elects the leader of several registries, with the group protocol of Confluent's registry.

The registries are members of a group with the protocol type ``sr`` and the protocol ``v0``. Each says where it is::

    {"version":1,"host":"registry1","port":8081,"master_eligibility":true,"scheme":"http"}

The member that the broker makes leader of the group chooses the leader of the registries, and tells all of them::

    {"version":1,"error":0,"master":"MEMBER ID","master_identity":{...}}

The choice is kept while its member is in the group, so that a registry that joins does not change the leader. Karapace
and Confluent's registry understand both texts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from logging import getLogger
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ErrorCode, HeadraceError, error_for
from headrace.protocol.api import Api

logger = getLogger(__name__)

SESSION_MS = 6_000
_HEARTBEAT_SECONDS = 1.0
_REBALANCE_MS = 10_000
_RETRY_SECONDS = 0.5
_PROTOCOL_TYPE, _PROTOCOL = "sr", "v0"
_REJOIN = frozenset({ErrorCode.rebalance_in_progress})
_FORGET = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation})


@dataclass(frozen=True)
class Identity:
    """The address of a registry, for other registries."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def encode(self) -> dict[str, object]:
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": True,
            "scheme": self.scheme,
        }


@dataclass(frozen=True)
class Leader:
    """
    :ivar is_self: whether this registry is the leader.
    """

    identity: Identity
    is_self: bool


OnLeader = Callable[[Leader | None], Awaitable[None]]


class Membership:
    """The membership of one registry. It calls back with each leader, and with None while there is none."""

    def __init__(self, cluster: Cluster, group: str, identity: Identity, on_leader: OnLeader) -> None:
        self._cluster = cluster
        self._group = group
        self._identity = identity
        self._on_leader = on_leader
        self._member_id = ""
        self._generation = -1
        self._master = ""

    async def run(self) -> None:
        """Joins the group, and stays in it until the task is cancelled."""
        while True:
            try:
                leader = await self._join()
                await self._on_leader(leader)
                await self._stay()
            except HeadraceError as error:
                logger.warning("the group %s of registries: %s", self._group, error)
                self._cluster.forget_coordinator("group", self._group)
                await self._on_leader(None)
                await asyncio.sleep(_RETRY_SECONDS)

    async def leave(self) -> None:
        if not self._member_id:
            return
        member = {"member_id": self._member_id, "group_instance_id": None, "reason": "the registry stops"}
        try:
            await self._ask(Api.LEAVE_GROUP, 2_000, member_id=self._member_id, members=[member])
        except HeadraceError as error:
            logger.info("leaving the group %s failed: %s", self._group, error)

    # -- joining

    async def _join(self) -> Leader | None:
        answer = await self._ask_join()
        if answer.error_code is ErrorCode.member_id_required:
            self._member_id = answer.member_id
            answer = await self._ask_join()
        self._check(answer, "joining")
        self._member_id, self._generation = answer.member_id, int(answer.generation_id)
        assignments: list[dict[str, object]] = []
        if answer.leader == answer.member_id:
            assignments = self._assignments(answer.members)
        answer = await self._ask(
            Api.SYNC_GROUP,
            _REBALANCE_MS,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_PROTOCOL,
            assignments=assignments,
        )
        self._check(answer, "joining")
        return self._leader(bytes(answer.assignment))

    async def _ask_join(self) -> Any:
        metadata = json.dumps(self._identity.encode(), separators=(",", ":")).encode()
        return await self._ask(
            Api.JOIN_GROUP,
            _REBALANCE_MS + 5_000,
            session_timeout=SESSION_MS,
            rebalance_timeout=_REBALANCE_MS,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[{"name": _PROTOCOL, "metadata": metadata}],
            reason="",
        )

    def _assignments(self, members: Any) -> list[dict[str, object]]:
        found = {each.member_id: _loads(bytes(each.metadata)) for each in members}
        master = choose_leader(found, self._master)
        assignment: dict[str, object] = {"version": 1, "error": 0, "master": master}
        if master is not None:
            assignment["master_identity"] = found[master]
        encoded = json.dumps(assignment, separators=(",", ":")).encode()
        return [{"member_id": member_id, "assignment": encoded} for member_id in found]

    def _leader(self, assignment: bytes) -> Leader | None:
        found = _loads(assignment)
        identity = found.get("master_identity")
        if found.get("error") != 0 or not isinstance(identity, dict):
            logger.warning("the group %s of registries has no leader", self._group)
            return None
        self._master = str(found.get("master", ""))
        try:
            where = Identity(str(identity["host"]), int(identity["port"]), str(identity.get("scheme", "http")))
        except (KeyError, TypeError, ValueError):
            logger.warning("the leader of the group %s has no address", self._group)
            return None
        return Leader(where, self._master == self._member_id)

    # -- staying

    async def _stay(self) -> None:
        """Sends heartbeats until the group rebalances.

        :raises HeadraceError: if the coordinator has not answered for as long as a session lasts.
        """
        loop = asyncio.get_running_loop()
        answered = loop.time()
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            try:
                answer = await self._ask(
                    Api.HEARTBEAT,
                    SESSION_MS // 2,
                    generation_id=self._generation,
                    member_id=self._member_id,
                    group_instance_id=None,
                )
                code = ErrorCode(answer.error_code)
                if code in _REJOIN:
                    return
                self._check(answer, "staying in")
                answered = loop.time()
            except HeadraceError as error:
                self._cluster.forget_coordinator("group", self._group)
                if not self._member_id or loop.time() - answered > SESSION_MS / 1000:
                    raise
                logger.info("a heartbeat to the group %s failed: %s", self._group, error)

    def _check(self, answer: Any, what: str) -> None:
        code = ErrorCode(answer.error_code)
        if code in _FORGET:
            self._member_id = ""
        if code is not ErrorCode.none:
            raise error_for(code, f"{what} the group {self._group}")

    async def _ask(self, api: Api, timeout_ms: int, **fields: Any) -> Any:
        connection = await self._cluster.coordinator("group", self._group, timeout_ms=timeout_ms)
        return await connection.ask(api, timeout_ms=timeout_ms, group_id=self._group, **fields)


def choose_leader(members: dict[str, dict[str, Any]], current: str) -> str | None:
    """The member that becomes leader: the present one, else the one with the first address. None if nobody may."""
    able = [name for name, identity in members.items() if identity.get("master_eligibility") is True]
    if current in able:
        return current
    return min(
        able, key=lambda name: (str(members[name].get("host")), str(members[name].get("port")), name), default=None
    )


def _loads(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
