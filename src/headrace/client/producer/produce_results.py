"""Applies the result of a Produce request to its batches. ``produce_outcomes.py`` says what a result means.

The accumulator's lock is held around all calls. Each method returns the batches that are settled by the call. The
sender calls their callbacks once the lock is released.
"""

from collections.abc import Callable
from logging import getLogger

from headrace.client.cluster import Cluster
from headrace.client.config import ProducerConfig
from headrace.client.errors import HeadraceError, KafkaTimeout
from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.batch import NO_OFFSET, ProducerBatch
from headrace.client.producer.produce_outcomes import WRONG_LEADER, Outcome, failure_of, outcome_of, records_text
from headrace.client.producer.producer_metrics import ProducerMetrics
from headrace.protocol.kio import ErrorCode

logger = getLogger(__name__)


class ProduceResults:
    """Settles, retries or splits batches by the broker's answers, or by the lack of an answer."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        metrics: ProducerMetrics,
        on_failure: Callable[[Exception], object] | None = None,
    ) -> None:
        """
        :param on_failure: called for each failed batch of a transaction.
        """
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._completion = accumulator.completion
        self._metrics = metrics
        self._on_failure = on_failure
        self._is_ordered = config.max_in_flight_requests_per_connection == 1

    def stored(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        """The broker has stored the batch."""
        if self._is_ordered:
            self._accumulator.unmute(batch.topic, batch.partition)
        if not batch.is_settled:  # Otherwise the batch has expired meanwhile.
            batch.succeed(base_offset, log_append_time_ms)
        self._completion.complete(batch)

    def rejected(
        self, batch: ProducerBatch, code: ErrorCode, message: str | None, error: HeadraceError | None = None
    ) -> list[ProducerBatch]:
        """The broker has rejected the batch, or the request had no answer."""
        if self._is_ordered:
            self._accumulator.unmute(batch.topic, batch.partition)
        if code in WRONG_LEADER:
            self._cluster.invalidate()
        outcome = outcome_of(
            code,
            batch,
            is_first_in_flight=self._completion.is_first_in_flight(batch),
            is_transactional=self._accumulator.options.is_transactional,
            retries=self._config.retries,
        )
        if outcome is Outcome.DELIVERED:
            self.stored(batch, NO_OFFSET, -1)
            return [batch]
        if outcome is Outcome.SPLIT:
            self._completion.split(batch)
            self._metrics.split()
            return [batch]
        if error is None:
            error = failure_of(code, batch, message)
        if outcome is Outcome.FAILED:
            if not batch.is_settled:
                self._give_up(batch, error)
            self._completion.fail(batch)
            return [batch]
        logger.info("%s-%s: the batch will be sent again: %s", batch.topic, batch.partition, error)
        batch.error = error
        self._metrics.sent_again(batch)
        if outcome is Outcome.RENUMBER:
            self._accumulator.epochs.bump_epoch(self._accumulator.queue_of(batch.topic, batch.partition))
        self._completion.retry(batch, self._cluster.clock.monotonic_ms())
        return []

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Gives up the batches that are older than ``delivery.timeout.ms``."""
        expired = self._completion.expire(now_ms)
        for batch in expired:
            self._give_up(batch, self._expiry_error(batch))
        return expired

    def drop_waiting(self, error: HeadraceError) -> list[ProducerBatch]:
        """Gives up the batches that wait. Batches that are with a broker still wait for its answer."""
        dropped = self._completion.abort()
        for batch in dropped:
            batch.give_up(error)
        return dropped

    def drop_in_flight(self, error: HeadraceError) -> list[ProducerBatch]:
        """Gives up the batches that are with brokers, because no answer will be read any more."""
        unsettled = []
        for queue in self._accumulator.queues.values():
            for batch in list(queue.in_flight):
                if not batch.is_settled:
                    batch.give_up(error)
                    unsettled.append(batch)
                self._completion.fail(batch)
        return unsettled

    def _give_up(self, batch: ProducerBatch, error: Exception) -> None:
        batch.give_up(error)
        self._metrics.failed(batch)
        if self._on_failure is not None:
            self._on_failure(error)

    def _expiry_error(self, batch: ProducerBatch) -> KafkaTimeout:
        if batch.error is not None:
            reason = f"{batch.attempts} attempts failed, the last one: {batch.error}"
        elif batch.is_sealed:
            reason = "the broker has not answered"
        elif self._cluster.leader(batch.topic, batch.partition) is None:
            reason = "the partition has no known leader"
        else:
            reason = "there was no connection to its leader, or other batches were sent first"
        return KafkaTimeout(
            f"{records_text(batch)} for {batch.topic}-{batch.partition} not delivered within "
            f"{self._config.delivery_timeout_ms} ms (delivery.timeout.ms); {reason}"
        )
