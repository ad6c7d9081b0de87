"""Sends requests to the right broker of a cluster, and sends them again if they fail.

A caller that needs metadata refreshes it if it is old or known to be wrong. There is no task in the background.

The ``ask_*`` methods send one request to the right broker. They try again, after a growing pause, while the failure may
pass (no connection, a timeout, a retriable error code) and there is time. An error code that is not retriable comes
back in the answer, and the caller handles it. A request that is sent twice may take effect twice, as with Kafka's own
clients. The methods use the highest version that the broker supports, but at most ``version``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Self, TypeVar

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
from headrace.client.metrics.connections import ConnectionMetrics
from headrace.client.own_random import shuffle
from headrace.client.pool import ConnectionPool
from headrace.client.retry import Backoff, Deadline
from headrace.client.types import Node, PartitionInfo
from headrace.protocol.api import Api
from headrace.runtime.clock import Clock, SystemClock

_T = TypeVar("_T")
#: Returns the error codes of an answer that decide whether the request is sent again.
Codes = Callable[[Any], Iterable[ErrorCode]]

_WRONG_COORDINATOR = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})


class Cluster:
    """The brokers of a cluster, and the connections of one client to them."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        may_create_topics: bool = True,
        metrics: ConnectionMetrics | None = None,
    ) -> None:
        """
        :param may_create_topics: False if a request for metadata must never create a topic.
        :param sleep: waits for a number of seconds. Tests pass a function that moves their clock.
        :param metrics: counts what the connections do.
        """
        self.config = config
        self.metadata = Metadata()
        self.clock: Clock = clock or SystemClock()
        self._sleep = sleep
        self._may_create_topics = may_create_topics
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._bootstrap = {-1 - at: Node(-1 - at, *parse_address(s)) for at, s in enumerate(config.bootstrap_servers)}
        self._pool = ConnectionPool(config, self.clock, self.pause, metrics=metrics)
        self._coordinators = Coordinators(self._connect, self._connect_to_any, self._request_timeout_ms)
        self._refreshing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, *, timeout_ms: float | None = None) -> None:
        """Connects to a broker, and asks it for the others.

        :raises BrokerUnreachable: if no broker answers in time.
        """
        await self.refresh(timeout_ms=timeout_ms)

    async def close(self) -> None:
        await self._pool.close()

    # -- metadata

    @property
    def nodes(self) -> list[Node]:
        return list(self.metadata.nodes.values())

    def partitions(self, topic: str) -> list[PartitionInfo]:
        """Returns the partitions of a topic in the current metadata; see :meth:`partitions_of`."""
        return self.metadata.partitions(topic)

    def leader(self, topic: str, index: int) -> Node | None:
        return self.metadata.leader(topic, index)

    def invalidate(self) -> None:
        """Marks the metadata as wrong, so that it is refreshed."""
        self.metadata.invalidate()

    def is_stale(self) -> bool:
        config = self.config
        return self.metadata.is_stale(self.clock.monotonic_ms(), config.metadata_max_age_ms, config.retry_backoff_ms)

    async def ensure_fresh(self, *, timeout_ms: float | None = None) -> None:
        """Refreshes the metadata if it is old, or marked as wrong."""
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
        """Asks for the brokers and for topics. Later refreshes ask for these topics again.

        :param topics: the topics. Without it, the topics of earlier refreshes.
        :param create: a missing topic may be created, if the broker allows that.
        :param all_topics: asks for all topics. Later refreshes do not ask for them.
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
        """Returns the partitions of a topic. Asks for metadata until the topic is known.

        :raises UnknownTopic: if the topic does not exist, and is not created in time.
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
                    f"there is no topic {topic!r}, even after {deadline.timeout_ms:.0f} ms; create it, or set "
                    "auto.create.topics.enable on the brokers",
                )
            await self.pause(delay_ms, deadline)

    # -- connections

    async def connection(
        self, node_id: int | None = None, *, purpose: str = "", timeout_ms: float | None = None
    ) -> Connection:
        """Returns an open connection to a broker. Without an id, to the broker with the fewest unanswered requests.

        :raises BrokerUnreachable: if the connection cannot be opened. There is one attempt, after the backoff.
        """
        deadline = self._deadline(timeout_ms)
        if node_id is None:
            return await self._connect_to_any(deadline, purpose)
        return await self._connect(self._node(node_id), purpose, deadline)

    def on_connect(self, callback: Callable[[Connection], object]) -> None:
        """Calls a function with each connection that is opened from now on."""
        self._pool.on_open = callback

    def _node(self, node_id: int) -> Node:
        node = self.metadata.nodes.get(node_id) or self._bootstrap.get(node_id)
        if node is None:
            self.invalidate()
            raise BrokerUnreachable(f"broker {node_id} is not in the cluster's metadata")
        return node

    async def _connect_to_any(self, deadline: Deadline, purpose: str = "") -> Connection:
        """Connects to the broker with the fewest unanswered requests.

        If there are other brokers, the attempt gets half of the time, so that they can be tried if it fails.
        """
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
            self.invalidate()  # The broker may have moved to another address.
            raise

    # -- coordinators

    async def coordinator(
        self, kind: CoordinatorKind, key: str, *, purpose: str = "", timeout_ms: float | None = None
    ) -> Connection:
        """Returns a connection to the coordinator of a group or of a transactional id, used for coordination only.

        :param purpose: asks for a separate connection, for a request that the coordinator may hold for a long time.
        """
        deadline = self._deadline(timeout_ms)

        async def find() -> Connection:
            return await self._coordinators.connection(kind, key, deadline, purpose)

        return await self._until(find, f"finding the coordinator of the {kind} {key!r}", deadline)

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Forgets the coordinator, because another broker has become the coordinator."""
        self._coordinators.forget(kind, key)

    # -- requests

    async def ask_any(
        self, api: Api, /, *, version: int | None = None, timeout_ms: float | None = None, codes: Codes | None = None,
        **fields: Any,
    ) -> Any:  # fmt: skip
        """Asks the broker with the fewest unanswered requests."""

        return await self._ask(self._connect_to_any, api, version, timeout_ms, codes, fields)

    async def ask_controller(
        self, api: Api, /, *, version: int | None = None, timeout_ms: float | None = None, codes: Codes | None = None,
        **fields: Any,
    ) -> Any:  # fmt: skip
        """Asks the controller, as the metadata has it."""

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
        """Tries until the attempt succeeds, fails for good, or the deadline passes."""
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
                raise self._last_error(what, failures, deadline) from failures[-1]
            await self.pause(delay_ms, deadline)

    def _last_error(self, what: str, failures: list[HeadraceError], deadline: Deadline) -> HeadraceError:
        hint = f". Is there a broker at {', '.join(self.config.bootstrap_servers)} (bootstrap_servers)?"
        # If the request first needed metadata, the message of that failure has the same hint already.
        reasons = "; ".join(dict.fromkeys(str(error).removesuffix(hint) for error in failures))
        times = "once" if len(failures) == 1 else f"{len(failures)} times"
        message = f"{what} failed {times} within {deadline.timeout_ms:.0f} ms: {reasons}"
        if isinstance(failures[-1], BrokerUnreachable):
            return BrokerUnreachable(message + hint)
        return KafkaTimeout(message)

    def why_no_leader(self, topic: str, partition: int) -> BrokerError:
        """Returns the reason why :meth:`leader` returned None for a partition."""
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

    async def pause(self, delay_ms: float, deadline: Deadline) -> None:
        """Waits, but at most until the deadline."""
        delay_ms = min(delay_ms, deadline.left_ms())
        if delay_ms > 0:
            await self._sleep(delay_ms / 1000)


def top_code(answer: Any) -> Iterable[ErrorCode]:
    """Returns the error code of a whole answer, if it has one."""
    code = getattr(answer, "error_code", None)
    return () if code is None else (code,)


def _may_pass(error: HeadraceError) -> bool:
    if isinstance(error, BrokerError):
        return error.is_retriable
    return isinstance(error, BrokerUnreachable | KafkaTimeout)


def _topic_error(code: ErrorCode, topic: str) -> BrokerError:
    is_unknown = code is ErrorCode.unknown_topic_or_partition
    return error_for(code, f"there is no topic {topic!r}" if is_unknown else f"the topic {topic!r}")
