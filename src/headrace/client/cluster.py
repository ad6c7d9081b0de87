"""A cluster as a client sees it: who leads what, over which socket, and again if it fails.

Metadata is refreshed by whoever needs it and finds it old or known to be wrong; there is no task in the background.

The ``ask_*`` helpers send one request to where it belongs and try again, after a growing pause, while the failure may
pass (no connection, a timeout, a retriable code) and there is time. A code that is not retriable comes back in the
answer: its meaning is the caller's. What is asked twice may be done twice, as with Kafka's own clients. They speak the
highest version that the broker does, up to ``version``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import shuffle
from typing import Any, Self, TypeVar
from uuid import UUID

from headrace.client.config import ClientConfig, parse_address
from headrace.client.connection import Connection
from headrace.client.coordinators import CoordinatorKind, Coordinators
from headrace.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ErrorCode,
    HeadraceError,
    KafkaTimeout,
    UnknownTopic,
    error_for,
    is_retriable,
)
from headrace.client.metadata import Metadata
from headrace.client.pool import ConnectionPool
from headrace.client.retry import Backoff, Deadline
from headrace.client.types import Node, PartitionInfo
from headrace.protocol.api import Api
from headrace.runtime.clock import Clock, SystemClock

_T = TypeVar("_T")
#: Takes out of an answer the codes that decide whether to ask again.
Codes = Callable[[Any], Iterable[ErrorCode]]

_WRONG_COORDINATOR = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})


class Cluster:
    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        may_create_topics: bool = True,
    ) -> None:
        """
        :param may_create_topics: False if asking for a topic must never make the broker create it.
        :param sleep: waits for so many seconds; tests pass one that moves their clock.
        """
        self.config = config
        self.metadata = Metadata()
        self.clock: Clock = clock or SystemClock()
        self._sleep = sleep
        self._may_create_topics = may_create_topics
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._bootstrap = {-1 - at: Node(-1 - at, *parse_address(s)) for at, s in enumerate(config.bootstrap_servers)}
        self._pool = ConnectionPool(config, self.clock, self._pause)
        self._coordinators = Coordinators(self._connect, self._connect_to_any, self._request_timeout_ms)
        self._refreshing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, *, timeout_ms: float | None = None) -> None:
        """Finds a broker and learns of the others.

        :raises BrokerUnreachable: if none answers in time.
        """
        await self.refresh(timeout_ms=timeout_ms)

    async def close(self) -> None:
        await self._pool.close()

    # -- metadata

    @property
    def nodes(self) -> list[Node]:
        return list(self.metadata.nodes.values())

    def partitions(self, topic: str) -> list[PartitionInfo]:
        """What is known now; see :meth:`partitions_of`."""
        return self.metadata.partitions(topic)

    def leader(self, topic: str, index: int) -> Node | None:
        return self.metadata.leader(topic, index)

    def topic_id(self, topic: str) -> UUID | None:
        return self.metadata.topic_id(topic)

    def invalidate(self) -> None:
        """Says that the metadata turned out wrong."""
        self.metadata.invalidate()

    def is_stale(self) -> bool:
        config = self.config
        return self.metadata.is_stale(self.clock.monotonic_ms(), config.metadata_max_age_ms, config.retry_backoff_ms)

    async def ensure_fresh(self, *, timeout_ms: float | None = None) -> None:
        """Refreshes metadata that is old, or known to be wrong."""
        if self.is_stale():
            await self.refresh(timeout_ms=timeout_ms)

    async def refresh(
        self,
        topics: Iterable[str] | None = None,
        *,
        create: bool = True,
        all_topics: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Asks for the brokers and for topics: those given, which are followed from now on, or those followed so far.

        :param create: a topic that is not there may be made, if the broker does that.
        :param all_topics: asks for every topic, without following them.
        """
        if topics is not None:
            topics = set(topics)
            self.metadata.followed |= topics
        async with self._refreshing:
            names = sorted(self.metadata.followed if topics is None else topics)
            answer = await self.ask_any(
                Api.METADATA,
                timeout_ms=timeout_ms,
                topics=None if all_topics else [{"name": name, "topic_id": None} for name in names],
                allow_auto_topic_creation=create and self._may_create_topics,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            self.metadata.update(answer, self.clock.monotonic_ms(), is_of_all_topics=all_topics)

    async def partitions_of(
        self, topic: str, *, create: bool = True, timeout_ms: float | None = None
    ) -> list[PartitionInfo]:
        """The partitions of a topic, asked for until they are known.

        :raises UnknownTopic: if it is not there and does not come in time.
        """
        if (found := self.partitions(topic)) and not self.is_stale():
            return found
        deadline = self._deadline(timeout_ms)
        attempts = 0
        while True:
            await self.refresh([topic], create=create, timeout_ms=deadline.left_ms())
            if found := self.partitions(topic):
                return found
            info = self.metadata.topics.get(topic)
            code = ErrorCode.unknown_topic_or_partition if info is None else info.error
            attempts += 1
            if not is_retriable(code) or (not create and code is ErrorCode.unknown_topic_or_partition):
                raise _topic_error(code, topic)
            delay_ms = self._backoff.delay_ms(attempts)
            if delay_ms >= deadline.left_ms():
                raise UnknownTopic(
                    code,
                    f"there is no topic {topic!r} within {deadline.timeout_ms:.0f} ms; create it, or let the broker "
                    "do so (auto.create.topics.enable)",
                )
            await self._pause(delay_ms, deadline)

    # -- connections

    async def connection(
        self, node_id: int | None = None, *, purpose: str = "", timeout_ms: float | None = None
    ) -> Connection:
        """An open connection to a broker; without an id, to the one with the least to do.

        :raises BrokerUnreachable: if it cannot be opened; one attempt is made, after the pause that is due.
        """
        deadline = self._deadline(timeout_ms)
        if node_id is None:
            return await self._connect_to_any(deadline, purpose)
        return await self._connect(self._node(node_id), purpose, deadline)

    def _node(self, node_id: int) -> Node:
        node = self.metadata.nodes.get(node_id) or self._bootstrap.get(node_id)
        if node is None:
            self.invalidate()
            raise BrokerUnreachable(f"broker {node_id} is not in the cluster's metadata")
        return node

    async def _connect_to_any(self, deadline: Deadline, purpose: str = "") -> Connection:
        """To the one with the least to do. One that is silent leaves half of the time to the others."""
        known = self.nodes
        shuffle(known)
        nodes = [*known, *self._bootstrap.values()]
        if len({(node.host, node.port) for node in nodes}) > 1:
            deadline = Deadline(self.clock, deadline.left_ms() / 2)
        return await self._connect(self._pool.least_loaded(nodes), purpose, deadline)

    async def _connect(self, node: Node, purpose: str, deadline: Deadline) -> Connection:
        try:
            return await self._pool.connect(node, purpose, deadline)
        except BrokerUnreachable:
            self.invalidate()  # it may have moved
            raise

    # -- coordinators

    async def coordinator(
        self, kind: CoordinatorKind, key: str, *, purpose: str = "", timeout_ms: float | None = None
    ) -> Connection:
        """A connection to the coordinator of a group or of a transactional id, for nothing but coordination.

        :param purpose: of a connection of its own, for a request that the coordinator may hold for long.
        """
        deadline = self._deadline(timeout_ms)

        async def find() -> Connection:
            return await self._coordinators.connection(kind, key, deadline, purpose)

        return await self._until(find, f"finding the coordinator of the {kind} {key!r}", deadline)

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Says that it is another broker by now."""
        self._coordinators.forget(kind, key)

    # -- requests that find their way

    async def ask_any(
        self, api: Api, /, *, version: int | None = None, timeout_ms: float | None = None, codes: Codes | None = None,
        **fields: Any,
    ) -> Any:  # fmt: skip
        """Asks whichever broker has the least to do."""

        return await self._ask(self._connect_to_any, api, version, timeout_ms, codes, fields)

    async def ask_node(
        self, api: Api, node_id: int, /, *, version: int | None = None, timeout_ms: float | None = None,
        codes: Codes | None = None, **fields: Any,
    ) -> Any:  # fmt: skip
        """Asks one broker."""

        async def connect(deadline: Deadline) -> Connection:
            await self.ensure_fresh(timeout_ms=deadline.left_ms())
            return await self._connect(self._node(node_id), "", deadline)

        return await self._ask(connect, api, version, timeout_ms, codes, fields)

    async def ask_leader(
        self, api: Api, topic: str, partition: int, /, *, version: int | None = None, timeout_ms: float | None = None,
        codes: Codes | None = None, **fields: Any,
    ) -> Any:  # fmt: skip
        """Asks the leader of a partition."""

        async def connect(deadline: Deadline) -> Connection:
            if self.is_stale() or self.leader(topic, partition) is None:
                await self.refresh([topic], timeout_ms=deadline.left_ms())
            leader = self.leader(topic, partition)
            if leader is None:
                raise self.why_no_leader(topic, partition)
            return await self._connect(leader, "", deadline)

        return await self._ask(connect, api, version, timeout_ms, codes, fields)

    async def ask_controller(
        self, api: Api, /, *, version: int | None = None, timeout_ms: float | None = None, codes: Codes | None = None,
        **fields: Any,
    ) -> Any:  # fmt: skip
        """Asks the broker that metadata names as the controller."""

        async def connect(deadline: Deadline) -> Connection:
            await self.ensure_fresh(timeout_ms=deadline.left_ms())
            controller = self.metadata.nodes.get(self.metadata.controller_id)
            if controller is None:
                return await self._connect_to_any(deadline)
            return await self._connect(controller, "", deadline)

        return await self._ask(connect, api, version, timeout_ms, codes, fields)

    async def ask_coordinator(
        self, api: Api, kind: CoordinatorKind, key: str, /, *, version: int | None = None,
        timeout_ms: float | None = None, codes: Codes | None = None, **fields: Any,
    ) -> Any:  # fmt: skip
        """Asks the coordinator of a group or of a transactional id."""

        async def connect(deadline: Deadline) -> Connection:
            return await self._coordinators.connection(kind, key, deadline)

        def and_forget(answer: Any) -> Iterable[ErrorCode]:
            found = list((codes or top_code)(answer))
            if not _WRONG_COORDINATOR.isdisjoint(found):
                self.forget_coordinator(kind, key)
            return found

        return await self._ask(connect, api, version, timeout_ms, and_forget, fields)

    async def _ask(
        self,
        connect: Callable[[Deadline], Awaitable[Connection]],
        api: Api,
        version: int | None,
        timeout_ms: float | None,
        codes: Codes | None,
        fields: dict[str, Any],
    ) -> Any:
        deadline = self._deadline(timeout_ms)

        async def attempt() -> Any:
            connection = await connect(deadline)
            spoken, timeout_ms = connection.version_of(api, version), self._request_timeout_ms(deadline)
            answer = await connection.ask(api, version=spoken, timeout_ms=timeout_ms, **fields)
            for code in (codes or top_code)(answer):
                if code is not ErrorCode.none and is_retriable(code):
                    raise error_for(code, f"{api.label} at {connection.address}")
            return answer

        return await self._until(attempt, api.label, deadline)

    async def _until(self, attempt: Callable[[], Awaitable[_T]], what: str, deadline: Deadline) -> _T:
        """Tries until it works, cannot work, or the time is up."""
        failures: list[HeadraceError] = []
        while True:
            self._pool.raise_if_closed()
            try:
                return await attempt()
            except HeadraceError as error:
                if not _may_pass(error):
                    raise
                failures.append(error)
                self.invalidate()
            delay_ms = self._backoff.delay_ms(len(failures))
            if delay_ms >= deadline.left_ms():
                raise self._gave_up(what, failures, deadline) from failures[-1]
            await self._pause(delay_ms, deadline)

    def _gave_up(self, what: str, failures: list[HeadraceError], deadline: Deadline) -> HeadraceError:
        hint = f". Is there a broker at {', '.join(self.config.bootstrap_servers)} (bootstrap_servers)?"
        # A request that first needed metadata failed by a failure that says the same already.
        reasons = "; ".join(dict.fromkeys(str(error).removesuffix(hint) for error in failures))
        times = "once" if len(failures) == 1 else f"{len(failures)} times"
        message = f"{what} failed {times} within {deadline.timeout_ms:.0f} ms: {reasons}"
        if isinstance(failures[-1], BrokerUnreachable):
            return BrokerUnreachable(message + hint)
        return KafkaTimeout(message)

    def why_no_leader(self, topic: str, partition: int) -> BrokerError:
        """The error of a partition that :meth:`leader` has none for."""
        info = self.metadata.topics.get(topic)
        if info is None or info.error is not ErrorCode.none:
            return _topic_error(ErrorCode.unknown_topic_or_partition if info is None else info.error, topic)
        if self.metadata.partition(topic, partition) is None:
            return UnknownTopic(message=f"the topic {topic!r} has no partition {partition}")
        return error_for(ErrorCode.leader_not_available, f"the partition {topic}-{partition} has no leader")

    # -- time

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self.clock, self.config.api_timeout_ms if timeout_ms is None else timeout_ms)

    def _request_timeout_ms(self, deadline: Deadline) -> float:
        return max(1, min(self.config.request_timeout_ms, deadline.left_ms()))

    async def _pause(self, delay_ms: float, deadline: Deadline) -> None:
        delay_ms = min(delay_ms, deadline.left_ms())
        if delay_ms > 0:
            await self._sleep(delay_ms / 1000)


def top_code(answer: Any) -> Iterable[ErrorCode]:
    """The code of an answer as a whole, where it has one."""
    code = getattr(answer, "error_code", None)
    return () if code is None else (code,)


def _may_pass(error: HeadraceError) -> bool:
    if isinstance(error, BrokerError):
        return error.is_retriable
    return isinstance(error, BrokerUnreachable | KafkaTimeout)


def _topic_error(code: ErrorCode, topic: str) -> BrokerError:
    is_unknown = code is ErrorCode.unknown_topic_or_partition
    return error_for(code, f"there is no topic {topic!r}" if is_unknown else f"the topic {topic!r}")
