"""Lists and describes transactions, and ends those whose producer is gone (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.admin.requests import AdminRequests, AskedBroker, outcome
from headrace.client.admin.types import ProducerIdAndEpoch, Results, TransactionDescription, TransactionListing
from headrace.client.errors import HeadraceError
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.wire.describe_transactions import VERSION as DESCRIBE_VERSION
from headrace.protocol.wire.describe_transactions import TransactionState, read_transaction_states


class TransactionsAdmin:
    """The transactions of a cluster."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
        timeout_ms: float | None = None,
    ) -> list[TransactionListing]:
        """Lists the transactional ids of all brokers.

        :param states: only ids in these states, by Kafka's names: Ongoing, PrepareAbort, CompleteCommit, ...
        :param producer_ids: only ids with these producer ids.
        :param longer_than_ms: only ids whose transaction is open for a longer time.
        :param pattern: only ids that match a regular expression (RE2) as a whole.
        """
        filters: dict[str, Any] = {
            "state_filters": list(states),
            "producer_id_filters": list(producer_ids),
            "duration_filter": longer_than_ms,
            "transactional_id_pattern": pattern,
        }

        async def ask(broker: AskedBroker, keys: list[int]) -> Mapping[int, list[TransactionListing] | HeadraceError]:
            answer = await broker.ask(Api.LIST_TRANSACTIONS, **filters)
            found = [
                TransactionListing(each.transactional_id, int(each.producer_id), each.transaction_state, keys[0])
                for each in answer.transaction_states
            ]
            return {keys[0]: outcome(answer.error_code, found, f"the transactions of broker {keys[0]}")}

        ids = await self._requests.all_broker_ids(timeout_ms)
        found = (await self._requests.fan_out(ids, self._requests.brokers, ask, timeout_ms)).all()
        return sorted(listing for listings in found.values() for listing in listings)

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, TransactionDescription]:
        """Describes transactional ids: state, producer and partitions."""

        async def ask(broker: AskedBroker, keys: list[str]) -> Mapping[str, TransactionDescription | HeadraceError]:
            frame = await broker.ask_raw(Api.DESCRIBE_TRANSACTIONS, DESCRIBE_VERSION, transactional_ids=keys)
            states = read_transaction_states(frame)
            return {
                found.transactional_id: outcome(
                    found.error_code,
                    _description(found, broker.node.id),
                    f"the transactional id {found.transactional_id!r}",
                )
                for found in states
            }

        return await self._requests.fan_out(transactional_ids, self._requests.transaction_coordinators, ask, timeout_ms)

    async def describe_transaction(
        self, transactional_id: str, *, timeout_ms: float | None = None
    ) -> TransactionDescription:
        """Describes one transactional id."""
        found = await self.describe_transactions([transactional_id], timeout_ms=timeout_ms)
        return found.value(transactional_id)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = -1,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Writes an abort marker into one partition, without the coordinator.

        This ends a transaction that the coordinator has lost, and that blocks readers of committed records.
        ``describe_producers`` returns the numbers that are needed.
        """

        async def ask(broker: AskedBroker, keys: list[TopicPartition]) -> Mapping[TopicPartition, HeadraceError | None]:
            marker = {
                "producer_id": producer_id,
                "producer_epoch": producer_epoch,
                "transaction_result": False,
                "topics": [{"name": partition.topic, "partition_indexes": [partition.partition]}],
                "coordinator_epoch": coordinator_epoch,
            }
            answer = await broker.ask(Api.WRITE_TXN_MARKERS, markers=[marker])
            (found,) = answer.markers[0].topics[0].partitions
            return {
                keys[0]: outcome(found.error_code, None, f"the transaction of producer {producer_id} in {partition}")
            }

        (await self._requests.fan_out([partition], self._requests.leaders, ask, timeout_ms)).value(partition)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, ProducerIdAndEpoch]:
        """Fences the producers that use these transactional ids now, and aborts their open transactions."""

        async def ask(broker: AskedBroker, keys: list[str]) -> Mapping[str, ProducerIdAndEpoch | HeadraceError]:
            results: dict[str, ProducerIdAndEpoch | HeadraceError] = {}
            for transactional_id in keys:
                answer = await broker.ask(
                    Api.INIT_PRODUCER_ID,
                    transactional_id=transactional_id,
                    transaction_timeout=max(1, int(broker.timeout_ms)),
                )
                value = ProducerIdAndEpoch(int(answer.producer_id), int(answer.producer_epoch))
                results[transactional_id] = outcome(answer.error_code, value, f"the id {transactional_id!r}")
            return results

        return await self._requests.fan_out(transactional_ids, self._requests.transaction_coordinators, ask, timeout_ms)


def _description(found: TransactionState, coordinator_id: int) -> TransactionDescription:
    return TransactionDescription(
        found.transactional_id,
        coordinator_id,
        found.state,
        found.producer_id,
        found.producer_epoch,
        found.timeout_ms,
        None if found.start_time_ms < 0 else found.start_time_ms,
        found.partitions,
    )
