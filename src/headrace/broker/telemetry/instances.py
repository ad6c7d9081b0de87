"""The client instances that a broker knows: what each one is asked for, and when it last sent a request.

A client instance is one producer, consumer or admin client; its id is a UUID that a broker gave it. Any broker accepts
the id: a broker that does not know the instance creates it. So the state is in memory only, and an instance that was
removed because of its age, or because there are too many, comes back with its next request.

An instance belongs to the connection that it came with. When that connection is closed, the instance starts anew with
its next request, over any connection. Its series stay, because most clients come back.

The timing rules are Kafka's. A client may ask for its subscription once per push interval, and push once per interval.
The first push after such a request may come earlier, because clients wait for a random part of the first interval. An
instance whose subscriptions have changed starts anew, so that its client gets the new ones at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import UUID
from weakref import ref

from headrace.crc import crc32c
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.telemetry.subscriptions import Demand, Subscriptions
    from headrace.security.principal import Principal

#: Kafka's limit for a broker. The least recently active instance makes room.
MAX_INSTANCES = 16_384
#: An instance is removed after three push intervals without a request, but not sooner than this.
_LEAST_KEPT_MS = 60_000
_KEPT_INTERVALS = 3
#: Longer names of clients are cut, because every instance keeps them.
MAX_TEXT = 256


class TelemetryClient(Protocol):
    """The part of a client's connection that telemetry uses."""

    @property
    def peer(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def client_software(self) -> tuple[str, str]: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def is_closed(self) -> bool: ...


class ClientInstance:
    """One client. A dataclass would do, but making its methods takes a millisecond at the start of a broker."""

    def __init__(
        self,
        instance_id: UUID,
        attributes: Mapping[str, str | None],
        client: ref[TelemetryClient],
        principal: str,
        demand: Demand,
        subscriptions_version: int,
    ) -> None:
        """
        :param client: the connection that the instance came with.
        :param attributes: those that a subscription can select, and those that label the client's metrics.
        :param subscriptions_version: the version of the subscriptions that the demand was made from.
        """
        self.instance_id = instance_id
        self.attributes = attributes
        self.principal = principal
        self._client = client
        self.demand = demand
        self.subscription_id = subscription_id(demand, instance_id)
        self.subscriptions_version = subscriptions_version
        self.last_active_ms = 0
        self.last_get_ms: int | None = None
        self.last_push_ms: int | None = None
        #: Whether the client has not pushed since it got its subscription.
        self._may_push_at_once = False
        #: Whether the client has pushed for the last time.
        self.is_terminating = False
        self.last_error = ErrorCode.none

    def may_get(self, now_ms: int, *, asks_at_once: bool = False) -> bool:
        """Tells whether the client may ask for its subscription now. If so, the time is noted.

        :param asks_at_once: an error of the last push tells the client to ask without waiting.
        """
        earlier = [moment for moment in (self.last_get_ms, self.last_push_ms) if moment is not None]
        if earlier and not asks_at_once and now_ms - max(earlier) < self.demand.interval_ms:
            return False
        self.last_get_ms = now_ms
        self._may_push_at_once = True
        return True

    def may_push(self, now_ms: int) -> bool:
        """Tells whether the client may push its metrics now. If so, the time is noted."""
        push_ms = self.last_push_ms
        if not self._may_push_at_once and push_ms is not None and now_ms - push_ms < self.demand.interval_ms:
            return False
        self.last_push_ms = now_ms
        self._may_push_at_once = False
        return True

    def with_demand(self, demand: Demand, subscriptions_version: int) -> ClientInstance:
        """The same instance, which starts anew because the subscriptions have changed."""
        return ClientInstance(
            self.instance_id, self.attributes, self._client, self.principal, demand, subscriptions_version
        )

    @property
    def is_disconnected(self) -> bool:
        """Whether the connection that the instance came with is closed."""
        client = self._client()
        return client is None or client.is_closed

    def is_expired(self, now_ms: int) -> bool:
        return now_ms - self.last_active_ms > max(_LEAST_KEPT_MS, _KEPT_INTERVALS * self.demand.interval_ms)


class ClientInstances:
    def __init__(self, subscriptions: Subscriptions, *, max_instances: int = MAX_INSTANCES) -> None:
        self._subscriptions = subscriptions
        self._max_instances = max_instances
        #: The least recently active instance is the first.
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, instance_id: UUID) -> bool:
        return instance_id in self._instances

    def __iter__(self) -> Iterator[ClientInstance]:
        return iter(self._instances.values())

    def of(
        self, instance_id: UUID, attributes: Mapping[str, str | None], client: TelemetryClient, now_ms: int
    ) -> tuple[ClientInstance, ClientInstance | None]:
        """Finds or makes the instance of a client that has sent a request.

        :return: the instance, and the instance that was removed to make room, if any.
        """
        instance, removed = self._instances.get(instance_id), None
        if instance is None:
            if len(self._instances) >= self._max_instances:
                _, removed = self._instances.popitem(last=False)
            instance = self._new(instance_id, attributes, client)
        elif instance.is_disconnected:
            instance = self._new(instance_id, attributes, client)
        elif instance.subscriptions_version != self._subscriptions.version:
            instance = instance.with_demand(
                self._subscriptions.demand_on(instance.attributes), self._subscriptions.version
            )
        instance.last_active_ms = now_ms
        self._instances[instance_id] = instance
        self._instances.move_to_end(instance_id)
        return instance, removed

    def _new(self, instance_id: UUID, attributes: Mapping[str, str | None], client: TelemetryClient) -> ClientInstance:
        demand = self._subscriptions.demand_on(attributes)
        return ClientInstance(
            instance_id=instance_id,
            attributes=attributes,
            client=ref(client),
            principal=str(client.principal)[:MAX_TEXT],
            demand=demand,
            subscriptions_version=self._subscriptions.version,
        )

    def expire(self, now_ms: int) -> list[ClientInstance]:
        """Removes and returns the instances whose clients have been silent for too long."""
        expired = [each for each in self._instances.values() if each.is_expired(now_ms)]
        for each in expired:
            del self._instances[each.instance_id]
        return expired


def subscription_id(demand: Demand, instance_id: UUID) -> int:
    """Returns a number that changes with the demand: the crc32c of the demand, XORed with Java's hash of the id.

    All brokers compute the same number, so a client may push to another broker than the one that it asked.
    """
    checksum = crc32c(f"[{', '.join(demand.metrics)}]{demand.interval_ms}".encode())
    halves = (instance_id.int >> 64) ^ (instance_id.int & (2**64 - 1))
    number = checksum ^ (halves >> 32) ^ (halves & (2**32 - 1))
    return number - 2**32 if number >= 2**31 else number
