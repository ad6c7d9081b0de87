"""How the admin client asks: many items, each at the broker that it belongs to, and each with its own outcome.

A round finds out where each item belongs (a partition at its leader, a group at its coordinator), asks all those
brokers at once, one request a broker, and collects what each says. Items whose failure may pass go into the next round,
after a pause, and are looked for anew: their leader may be another by then. Others are done. When the time is up, an
item's last failure is its outcome.

A topic that is not there fails at once, though Kafka counts that as passing: whoever administers wants to be told.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self, TypeVar

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
from headrace.client.retry import Backoff, Deadline
from headrace.client.types import Node, TopicPartition
from headrace.protocol.api import Api

K = TypeVar("K")
V = TypeVar("V")

_COORDINATOR_KEY_TYPES = {"group": 0, "transaction": 1}
#: From this version on FindCoordinator takes many keys.
_MANY_COORDINATORS_VERSION = 4


class Target(NamedTuple):
    """A broker that is asked in one round, over an open connection."""

    node: Node
    connection: Connection
    timeout_ms: float

    async def ask(self, api: Api, *, version: int | None = None, **fields: Any) -> Any:
        """
        :param version: the highest to speak.
        """
        spoken = self.connection.version_of(api, version)
        return await self.connection.ask(api, version=spoken, timeout_ms=self.timeout_ms, **fields)

    async def ask_raw(self, api: Api, version: int, **fields: Any) -> memoryview:
        """The answer's frame, for what is read in another way."""
        spoken = self.connection.version_of(api, version)
        return await self.connection.ask_raw(api, version=spoken, timeout_ms=self.timeout_ms, **fields)


#: Where each item belongs: a broker's id, or why that cannot be told.
Places = Mapping[K, int | HeadraceError]
Locate = Callable[[list[K], Deadline], Awaitable[Places[K]]]
#: Asks one broker about its items.
Ask = Callable[[Target, list[K]], Awaitable[Mapping[K, V | HeadraceError]]]


class AdminBase:
    def __init__(self, config: Mapping[str, object] | None = None, **options: object) -> None:
        """
        :param config: options by Kafka's names, ``{"request.timeout.ms": 5000}``.
        :param options: options by Python's names, ``bootstrap_servers="127.0.0.1:9092"``.
        """
        self.config = AdminConfig.load(config, **options)
        self._cluster = Cluster(self.config, may_create_topics=False)
        self._backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)

    async def start(self, *, timeout_ms: float | None = None) -> None:
        """Finds a broker and learns of the others. Not needed: the first request does it too.

        :raises BrokerUnreachable: if none answers in time.
        """
        await self._cluster.start(timeout_ms=timeout_ms)

    async def close(self) -> None:
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- many items

    async def _fan_out(
        self, keys: Iterable[K], locate: Locate[K], ask: Ask[K, V], timeout_ms: float | None
    ) -> Results[K, V]:
        keys = list(dict.fromkeys(keys))
        deadline = self._deadline(timeout_ms)
        found: dict[K, V | HeadraceError] = {}
        waiting, rounds = keys, 0
        while waiting:
            found.update(await self._round(waiting, locate, ask, deadline))
            waiting = [key for key in waiting if _may_pass(found[key])]
            rounds += 1
            delay_ms = self._backoff.delay_ms(rounds)
            if not waiting or delay_ms >= deadline.left_ms():
                break
            self._cluster.invalidate()
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
        silence = KafkaTimeout("the broker's answer does not name it")
        return {key: outcomes.get(key, silence) for key in keys}

    async def _ask_one(
        self, node_id: int, keys: list[K], ask: Ask[K, V], deadline: Deadline
    ) -> Mapping[K, V | HeadraceError]:
        try:
            connection = await self._cluster.connection(node_id, timeout_ms=deadline.left_ms())
            node = self._cluster.metadata.nodes.get(node_id) or Node(node_id, connection.host, connection.port)
            return await ask(Target(node, connection, self._request_timeout_ms(deadline)), keys)
        except ClientClosed:
            raise
        except HeadraceError as error:
            return dict.fromkeys(keys, error)

    # -- where items belong

    async def _leaders(self, partitions: list[TopicPartition], deadline: Deadline) -> Places[TopicPartition]:
        cluster = self._cluster
        if cluster.is_stale() or any(cluster.leader(*partition) is None for partition in partitions):
            topics = {partition.topic for partition in partitions}
            await cluster.refresh(topics, timeout_ms=deadline.left_ms())
        leaders = {partition: cluster.leader(*partition) for partition in partitions}
        places = {
            partition: cluster.why_no_leader(*partition) if leader is None else leader.id
            for partition, leader in leaders.items()
        }
        # A topic that is not there would make every later answer one to be asked for again.
        cluster.metadata.forget({at.topic for at, place in places.items() if isinstance(place, UnknownTopic)})
        return places

    async def _brokers(self, broker_ids: list[int], deadline: Deadline) -> Places[int]:
        await self._cluster.ensure_fresh(timeout_ms=deadline.left_ms())
        known = self._cluster.metadata.nodes
        missing = ErrorCode.broker_id_not_registered
        return {id_: id_ if id_ in known else error_for(missing, f"there is no broker {id_}") for id_ in broker_ids}

    async def _group_coordinators(self, groups: list[str], deadline: Deadline) -> Places[str]:
        return await self._coordinators("group", groups, deadline)

    async def _transaction_coordinators(self, ids: list[str], deadline: Deadline) -> Places[str]:
        return await self._coordinators("transaction", ids, deadline)

    async def _coordinators(
        self, kind: CoordinatorKind, keys: list[str], deadline: Deadline
    ) -> dict[str, int | HeadraceError]:
        await self._cluster.ensure_fresh(timeout_ms=deadline.left_ms())
        connection = await self._cluster.connection(timeout_ms=deadline.left_ms())
        fields: dict[str, Any] = {
            "timeout_ms": self._request_timeout_ms(deadline),
            "key_type": _COORDINATOR_KEY_TYPES[kind],
        }
        if connection.version_of(Api.FIND_COORDINATOR) >= _MANY_COORDINATORS_VERSION:
            answer = await connection.ask(Api.FIND_COORDINATOR, coordinator_keys=keys, **fields)
            return {found.key: _place(kind, found.key, found) for found in answer.coordinators}
        answers = [await connection.ask(Api.FIND_COORDINATOR, key=key, **fields) for key in keys]
        return {key: _place(kind, key, found) for key, found in zip(keys, answers, strict=True)}

    async def _all_broker_ids(self, timeout_ms: float | None) -> list[int]:
        await self._cluster.refresh([], timeout_ms=timeout_ms)
        return [node.id for node in self._cluster.nodes]

    # -- one request

    async def _ask_controller(
        self, api: Api, timeout_ms: float | None, codes: Codes | None = None, **fields: Any
    ) -> Any:
        return await self._cluster.ask_controller(api, timeout_ms=timeout_ms, codes=codes, **fields)

    # -- time

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self._cluster.clock, self.config.api_timeout_ms if timeout_ms is None else timeout_ms)

    def _request_timeout_ms(self, deadline: Deadline) -> float:
        return max(1, min(self.config.request_timeout_ms, deadline.left_ms()))

    def _broker_timeout_ms(self, timeout_ms: float | None) -> int:
        """How long a broker may take for what is asked of it."""
        return int(
            min(self.config.request_timeout_ms, self.config.request_timeout_ms if timeout_ms is None else timeout_ms)
        )


def outcome(code: ErrorCode, value: V, what: str, said: str | None = None) -> V | HeadraceError:
    """The value if the code is none, else the error: what the broker said of it, and what it was asked about."""
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
