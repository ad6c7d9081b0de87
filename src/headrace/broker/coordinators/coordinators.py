"""The two coordinators of a broker: passes events of internal topics on to the coordinator of the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.coordinators.transaction_service import TransactionService


class Coordinators:
    def __init__(self, groups: GroupService, transactions: TransactionService) -> None:
        self.groups = groups
        self.transactions = transactions
        self._by_topic: dict[str, GroupService | TransactionService] = {
            service.topic: service for service in (groups, transactions)
        }

    def start(self) -> None:
        self.groups.start()
        self.transactions.start()

    async def stop(self) -> None:
        await self.transactions.stop()
        await self.groups.stop()

    def leadership_changed(self, topic: str, index: int, is_leader: bool) -> None:
        """The role of a partition on this broker has changed. Called on the event loop."""
        service = self._by_topic.get(topic)
        if service is not None and is_leader:
            service.became_leader(index)
        elif service is not None:
            service.resigned(index)

    def log_deleted(self, topic: str, index: int) -> None:
        service = self._by_topic.get(topic)
        if service is not None:
            service.unload(index)

    def topic_deleted(self, name: str) -> None:
        self.groups.topic_deleted(name)
        self.transactions.topic_deleted(name)
