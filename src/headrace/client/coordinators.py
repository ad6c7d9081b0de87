"""Finds the coordinators of groups and transactional ids, and remembers them until a request shows a change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from headrace.client.connection import Connection
from headrace.client.errors import BrokerUnreachable, ErrorCode, error_for
from headrace.client.retry import Deadline
from headrace.client.types import Node
from headrace.protocol.api import Api

CoordinatorKind = Literal["group", "transaction"]

_KEY_TYPES = {"group": 0, "transaction": 1}


class Coordinators:
    """The coordinators that a client knows."""

    def __init__(
        self,
        connect: Callable[[Node, str, Deadline], Awaitable[Connection]],
        connect_to_any: Callable[[Deadline], Awaitable[Connection]],
        request_timeout_ms: Callable[[Deadline], float],
    ) -> None:
        self._connect = connect
        self._connect_to_any = connect_to_any
        self._request_timeout_ms = request_timeout_ms
        self._known: dict[tuple[CoordinatorKind, str], Node] = {}

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        self._known.pop((kind, key), None)

    async def connection(self, kind: CoordinatorKind, key: str, deadline: Deadline, purpose: str = "") -> Connection:
        """Tries once to find the coordinator and to connect to it. The connection is used for coordination only."""
        node = self._known.get((kind, key))
        if node is None:
            node = self._known[kind, key] = await self._find(kind, key, deadline)
        try:
            return await self._connect(node, f"{kind} coordinator {purpose}", deadline)
        except BrokerUnreachable:
            self.forget(kind, key)
            raise

    async def _find(self, kind: CoordinatorKind, key: str, deadline: Deadline) -> Node:
        connection = await self._connect_to_any(deadline)
        answer = await connection.ask(
            Api.FIND_COORDINATOR,
            timeout_ms=self._request_timeout_ms(deadline),
            key_type=_KEY_TYPES[kind],
            key=key,
            coordinator_keys=[key],
        )
        found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer  # Several keys since v4.
        if found.error_code is not ErrorCode.none:
            raise error_for(found.error_code, f"the coordinator of the {kind} {key!r}")
        return Node(int(found.node_id), found.host, int(found.port))
