"""Sends the requests of the admin client: for many items, each to the right broker, and each with its own result.

A round finds the broker of each item (the leader of a partition, the coordinator of a group), asks all these brokers at
once, with one request per broker, and collects the results. If the failure of an item may pass, the item goes into the
next round, after a pause. The next round finds its broker again, because the leader may have changed. When the time is
up, the last failure of an item is its result.

A missing topic fails at once, although Kafka calls that error retriable: an administrator wants to know.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from headrace.client.admin.types import Results
from headrace.client.cluster import Cluster, Codes
from headrace.client.config import AdminConfig
from headrace.client.connection import Connection
from headrace.client.coordinators import CoordinatorKind
from headrace.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ClientClosed,
    ErrorCode,
    HeadraceError,
    KafkaTimeout,
    UnknownTopic,
    error_for,
)
from headrace.client.metrics.connections import ConnectionMetrics
from headrace.client.metrics.registry import new_registry
from headrace.client.metrics.table import ADMIN
from headrace.client.retry import Backoff, Deadline
from headrace.client.telemetry.telemetry import Telemetry
from headrace.client.types import Node, TopicPartition
from headrace.protocol.api import Api

K = TypeVar("K")
V = TypeVar("V")

_COORDINATOR_KEY_TYPES = {"group": 0, "transaction": 1}
#: From this version on, FindCoordinator has several keys.
_MANY_COORDINATORS_VERSION = 4


class AskedBroker(NamedTuple):
    """A broker that is asked in one round, over an open connection."""

    node: Node
    connection: Connection
    timeout_ms: float

    async def ask(self, api: Api, *, version: int | None = None, **fields: Any) -> Any:
        """Sends a request and returns the answer.

        :param version: the highest version to use.
        """
        spoken = self.connection.version_of(api, version)
        return await self.connection.ask(api, version=spoken, timeout_ms=self.timeout_ms, **fields)

    async def ask_raw(self, api: Api, version: int, **fields: Any) -> memoryview:
        """Sends a request and returns the frame of the answer, for answers that kio cannot read."""
        spoken = self.connection.version_of(api, version)
        return await self.connection.ask_raw(api, version=spoken, timeout_ms=self.timeout_ms, **fields)


#: The id of each item's broker, or the error if it is not known.
BrokerIds = Mapping[K, int | HeadraceError]
Locate = Callable[[list[K], Deadline], Awaitable[BrokerIds[K]]]
#: Asks one broker for the results of its items.
Ask = Callable[[AskedBroker, list[K]], Awaitable[Mapping[K, V | HeadraceError]]]


class AdminRequests:
    """The requests of one admin client."""

    def __init__(self, config: AdminConfig) -> None:
        self.config = config
        self.registry = new_registry("admin-client", config)
        connections = ConnectionMetrics(self.registry)
        self.registry.add("metrics", ADMIN, {"throttle": connections.throttle})
        self.cluster = Cluster(config, may_create_topics=False, metrics=connections)
        self.telemetry = Telemetry(self.cluster, self.registry)
        self.backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    # -- many items

    async def fan_out(
        self, keys: Iterable[K], locate: Locate[K], ask: Ask[K, V], timeout_ms: float | None
    ) -> Results[K, V]:
        """Asks for many items, in rounds.

        :param locate: finds the broker of each item.
        :param ask: asks one broker for the results of its items.
        """
        keys = list(dict.fromkeys(keys))
        deadline = self.deadline(timeout_ms)
        found: dict[K, V | HeadraceError] = {}
        waiting, rounds = keys, 0
        while waiting:
            found.update(await self._round(waiting, locate, ask, deadline))
            waiting = [key for key in waiting if _may_pass(found[key])]
            rounds += 1
            delay_ms = self.backoff.delay_ms(rounds)
            if not waiting or delay_ms >= deadline.left_ms():
                break
            self.cluster.invalidate()
            await asyncio.sleep(delay_ms / 1000)
        return Results((key, found[key]) for key in keys)

    async def _round(
        self, keys: list[K], locate: Locate[K], ask: Ask[K, V], deadline: Deadline
    ) -> dict[K, V | HeadraceError]:
        outcomes: dict[K, V | HeadraceError] = {}
        by_node: dict[int, list[K]] = defaultdict(list)
        for key, place in (await locate(keys, deadline)).items():
            if isinstance(place, HeadraceError):
                outcomes[key] = place
            else:
                by_node[place].append(key)
        for answer in await asyncio.gather(*(self._ask_one(node, its, ask, deadline) for node, its in by_node.items())):
            outcomes.update(answer)
        silence = KafkaTimeout("the broker's answer does not contain it")
        return {key: outcomes.get(key, silence) for key in keys}

    async def _ask_one(
        self, node_id: int, keys: list[K], ask: Ask[K, V], deadline: Deadline
    ) -> Mapping[K, V | HeadraceError]:
        try:
            connection = await self.cluster.connection(node_id, timeout_ms=deadline.left_ms())
            node = self.cluster.metadata.nodes.get(node_id) or Node(node_id, connection.host, connection.port)
            return await ask(AskedBroker(node, connection, self.request_timeout_ms(deadline)), keys)
        except ClientClosed:
            raise
        except HeadraceError as error:
            return dict.fromkeys(keys, error)

    # -- the brokers of items

    async def leaders(self, partitions: list[TopicPartition], deadline: Deadline) -> BrokerIds[TopicPartition]:
        cluster = self.cluster
        if cluster.is_stale() or any(cluster.leader(*partition) is None for partition in partitions):
            topics = {partition.topic for partition in partitions}
            await cluster.refresh(topics, timeout_ms=deadline.left_ms())
        leaders = {partition: cluster.leader(*partition) for partition in partitions}
        places = {
            partition: cluster.why_no_leader(*partition) if leader is None else leader.id
            for partition, leader in leaders.items()
        }
        # The metadata would count as incomplete as long as it contains a missing topic.
        cluster.metadata.forget({at.topic for at, place in places.items() if isinstance(place, UnknownTopic)})
        return places

    async def brokers(self, broker_ids: list[int], deadline: Deadline) -> BrokerIds[int]:
        await self.cluster.ensure_fresh(timeout_ms=deadline.left_ms())
        known = self.cluster.metadata.nodes
        missing = ErrorCode.broker_id_not_registered
        return {id_: id_ if id_ in known else error_for(missing, f"there is no broker {id_}") for id_ in broker_ids}

    async def group_coordinators(self, groups: list[str], deadline: Deadline) -> BrokerIds[str]:
        return await self._coordinators("group", groups, deadline)

    async def transaction_coordinators(self, ids: list[str], deadline: Deadline) -> BrokerIds[str]:
        return await self._coordinators("transaction", ids, deadline)

    async def _coordinators(
        self, kind: CoordinatorKind, keys: list[str], deadline: Deadline
    ) -> dict[str, int | HeadraceError]:
        await self.cluster.ensure_fresh(timeout_ms=deadline.left_ms())
        connection = await self.cluster.connection(timeout_ms=deadline.left_ms())
        fields: dict[str, Any] = {
            "timeout_ms": self.request_timeout_ms(deadline),
            "key_type": _COORDINATOR_KEY_TYPES[kind],
        }
        if connection.version_of(Api.FIND_COORDINATOR) >= _MANY_COORDINATORS_VERSION:
            answer = await connection.ask(Api.FIND_COORDINATOR, coordinator_keys=keys, **fields)
            return {found.key: _place(kind, found.key, found) for found in answer.coordinators}
        answers = [await connection.ask(Api.FIND_COORDINATOR, key=key, **fields) for key in keys]
        return {key: _place(kind, key, found) for key, found in zip(keys, answers, strict=True)}

    async def all_broker_ids(self, timeout_ms: float | None) -> list[int]:
        await self.cluster.refresh([], timeout_ms=timeout_ms)
        return [node.id for node in self.cluster.nodes]

    # -- one request

    async def ask_controller(
        self, api: Api, timeout_ms: float | None, codes: Codes | None = None, **fields: Any
    ) -> Any:
        return await self.cluster.ask_controller(api, timeout_ms=timeout_ms, codes=codes, **fields)

    # -- time

    def deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self.cluster.clock, self.config.api_timeout_ms if timeout_ms is None else timeout_ms)

    def request_timeout_ms(self, deadline: Deadline) -> float:
        return max(1, min(self.config.request_timeout_ms, deadline.left_ms()))

    def broker_timeout_ms(self, timeout_ms: float | None) -> int:
        """Returns the timeout that a request contains: how long the broker may work on it."""
        return int(
            min(self.config.request_timeout_ms, self.config.request_timeout_ms if timeout_ms is None else timeout_ms)
        )


def outcome(code: ErrorCode, value: V, what: str, said: str | None = None) -> V | HeadraceError:
    """Returns the value if there is no error code; otherwise the error, with the broker's message and the item."""
    return value if code is ErrorCode.none else error_for(code, _message(what, said))


def raise_for(code: ErrorCode, what: str, said: str | None = None) -> None:
    if code is not ErrorCode.none:
        raise error_for(code, _message(what, said))


def _message(what: str, said: str | None) -> str:
    name = what.rpartition(" ")[2].strip("'")
    return what if not said else said if name in said else f"{what}: {said}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return dict(topics)


def _place(kind: CoordinatorKind, key: str, found: Any) -> int | HeadraceError:
    return outcome(found.error_code, int(found.node_id), f"the coordinator of the {kind} {key!r}", found.error_message)


def _may_pass(result: object) -> bool:
    if isinstance(result, UnknownTopic):
        return False
    if isinstance(result, BrokerError):
        return result.is_retriable
    return isinstance(result, BrokerUnreachable | KafkaTimeout)
