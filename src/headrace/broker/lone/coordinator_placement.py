"""Places the coordinators of a lone broker: this broker leads all partitions, and an append is committed at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.coordinators.placement import AnyCoordinator, CoordinatorPlacement

if TYPE_CHECKING:
    from headrace.broker.coordinators.internal_topics import InternalTopics


class LonePlacement(CoordinatorPlacement):
    loads_empty_at_once = True

    def __init__(self, topic: str, internal_topics: InternalTopics) -> None:
        self._topic = topic
        self._internal_topics = internal_topics

    def partition_count(self, coordinator: AnyCoordinator) -> int:  # noqa: ARG002  as in CoordinatorPlacement
        return self._internal_topics.partition_count(self._topic)

    async def learn_partition_count(self) -> None:
        pass

    async def topic_exists(self, load_led_partitions: Callable[[], None]) -> None:
        load_led_partitions()

    def topic_deleted(self) -> None:
        pass

    async def wait_to_load(self, coordinator: AnyCoordinator) -> None:
        pass

    async def replicated(self, coordinator: AnyCoordinator, name: str, timeout_ms: int) -> None:
        pass
