"""What a broker's answer, or the want of one, does to a batch. The accumulator's lock is held in all of this.

A method returns the batches that are settled by it: who waits for them is told once the lock is released. What an
answer means is in ``produce_outcomes.py``.
"""

from collections.abc import Callable
from logging import getLogger

from headrace.client.cluster import Cluster
from headrace.client.config import ProducerConfig
from headrace.client.errors import HeadraceError, KafkaTimeout
from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.batch import ProducerBatch
from headrace.client.producer.produce_outcomes import WRONG_LEADER, Outcome, failure_of, outcome_of
from headrace.protocol.kio import ErrorCode

logger = getLogger(__name__)


class Verdicts:
    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        on_failure: Callable[[Exception], object] | None = None,
    ) -> None:
        """
        :param on_failure: told of each batch that a transaction has lost.
        """
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._on_failure = on_failure
        self._is_ordered = config.max_in_flight_requests_per_connection == 1

    def deliver(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        if self._is_ordered:
            self._accumulator.unmute(batch.topic, batch.partition)
        if not batch.is_settled:  # else it has expired meanwhile
            batch.succeed(base_offset, log_append_time_ms)
        self._accumulator.complete(batch)

    def judge(
        self, batch: ProducerBatch, code: ErrorCode, message: str | None, error: HeadraceError | None = None
    ) -> list[ProducerBatch]:
        """Deals with a batch that was not taken."""
        accumulator = self._accumulator
        if self._is_ordered:
            accumulator.unmute(batch.topic, batch.partition)
        if code in WRONG_LEADER:
            self._cluster.invalidate()
        outcome = outcome_of(
            code,
            batch,
            is_first_in_flight=accumulator.is_first_in_flight(batch),
            is_transactional=accumulator.options.is_transactional,
            retries=self._config.retries,
        )
        if outcome is Outcome.DELIVERED:
            self.deliver(batch, -1, -1)
            return [batch]
        if outcome is Outcome.SPLIT:
            accumulator.split(batch)
            return [batch]
        if error is None:
            error = failure_of(code, batch, message)
        if outcome is Outcome.FAILED:
            if not batch.is_settled:
                self._give_up(batch, error)
            accumulator.fail(batch)
            return [batch]
        logger.info("%s-%s: to be sent again: %s", batch.topic, batch.partition, error)
        batch.error = error
        if outcome is Outcome.RENUMBER:
            accumulator.bump_epoch(batch.topic, batch.partition)
        accumulator.retry(batch, self._cluster.clock.monotonic_ms())
        return []

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Gives up what is older than ``delivery.timeout.ms``."""
        expired = self._accumulator.expire(now_ms)
        for batch in expired:
            self._give_up(batch, self._too_late(batch))
        return expired

    def drop(self, error: HeadraceError) -> list[ProducerBatch]:
        """Gives up what waits; what is with a broker is answered by it."""
        dropped = self._accumulator.abort()
        for batch in dropped:
            batch.give_up(error)
        return dropped

    def drop_in_flight(self, error: HeadraceError) -> list[ProducerBatch]:
        """Gives up what is with brokers that will not be heard any more."""
        unsettled = []
        for queue in self._accumulator.queues.values():
            for batch in list(queue.in_flight):
                if not batch.is_settled:
                    batch.give_up(error)
                    unsettled.append(batch)
                self._accumulator.fail(batch)
        return unsettled

    def _give_up(self, batch: ProducerBatch, error: Exception) -> None:
        batch.give_up(error)
        if self._on_failure is not None:
            self._on_failure(error)

    def _too_late(self, batch: ProducerBatch) -> KafkaTimeout:
        place, timeout_ms = f"{batch.topic}-{batch.partition}", self._config.delivery_timeout_ms
        count = batch.record_count
        records = "a record" if count == 1 else f"{count} records"
        if batch.error is not None:
            last = f"; failed {batch.attempts} times, last: {batch.error}"
        elif batch.is_sealed:
            last = "; the broker has not answered"
        elif self._cluster.leader(batch.topic, batch.partition) is None:
            last = "; the partition has no leader that is known"
        else:
            last = "; there was no connection to its leader, or others were before it"
        return KafkaTimeout(f"{records} for {place} not delivered within {timeout_ms} ms (delivery.timeout.ms){last}")
