"""Writes markers: the control batches that end a transaction in each of its partitions.

A marker is one control record after the transaction's last record (layout: ``protocol/record_body.py``). A consumer
with ``read_committed`` gets the records before a commit marker, and skips the records that an abort marker ends.
Writing a marker twice does no harm: the second marker ends nothing. So after a crash the coordinator writes all
markers again.
"""

from collections.abc import Callable, Iterable
from logging import getLogger
from typing import NamedTuple, Protocol

from headrace.log.partition_log import Origin
from headrace.protocol.batch_building import build_batch, control_record
from headrace.protocol.errors import InvalidProducerEpoch, KafkaError, TransactionCoordinatorFenced
from headrace.protocol.record_body import ControlKind
from headrace.protocol.records import NO_SEQUENCE
from headrace.replication.partition import Partition
from headrace.replication.partitions import Partitions
from headrace.runtime.clock import Clock
from headrace.transactions.metadata import TopicPartition

logger = getLogger(__name__)


class Marker(NamedTuple):
    """The content of a marker."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    #: The leader epoch of the coordinator's partition. A partition rejects the marker of an older coordinator.
    coordinator_epoch: int

    def batch(self, now_ms: int) -> bytes:
        """The control batch with this marker."""
        kind = ControlKind.commit if self.is_commit else ControlKind.abort
        return build_batch(
            [control_record(kind, self.coordinator_epoch, timestamp_ms=now_ms)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=NO_SEQUENCE,
            is_transactional=True,
            is_control=True,
        )


#: Called once, with the partitions to which the marker could not be written, and may be written later.
OnSent = Callable[[frozenset[TopicPartition]], None]


#: Errors of a marker that is not needed any more: a newer producer or coordinator has ended the transaction.
OBSOLETE_MARKER_ERRORS = (InvalidProducerEpoch, TransactionCoordinatorFenced)


class MarkerSender(Protocol):
    """Writes a marker to all partitions of a transaction, wherever their leaders are."""

    def send(self, marker: Marker, partitions: Iterable[TopicPartition], on_sent: OnSent) -> None: ...


class LocalMarkerWriter:
    """Writes markers to the partitions that this broker leads. A single broker leads all partitions."""

    def __init__(
        self, partitions: Partitions, clock: Clock, on_written: Callable[[str, int, Marker], object] = lambda *_: None
    ) -> None:
        """``on_written`` is called after each marker, for consumers that wait and groups with pending offsets."""
        self._partitions = partitions
        self._clock = clock
        self._on_written = on_written

    def write(self, topic: str, index: int, marker: Marker) -> tuple[Partition, int]:
        """Appends a marker. Returns the partition, and the high watermark from which the marker is committed.

        :raises KafkaError: if this broker does not lead the partition, or a newer producer or coordinator has written.
        """
        partition = self._partitions.leader(topic, index)
        partition.check_enough_replicas()
        partition.append(marker.batch(self._clock.wall_ms()), Origin.COORDINATOR)
        self._on_written(topic, index, marker)
        return partition, partition.log.next_offset

    def send(self, marker: Marker, partitions: Iterable[TopicPartition], on_sent: OnSent) -> None:
        unsent = []
        for topic, index in sorted(partitions):
            if self._partitions.get(topic, index) is None and not self._partitions.is_offline(topic, index):
                continue  # the topic was deleted
            try:
                self.write(topic, index, marker)
            except OBSOLETE_MARKER_ERRORS as error:
                logger.info("the marker for %s-%d is not needed any more: %s", topic, index, error)
            except (KafkaError, OSError) as error:
                logger.warning("cannot write the marker to %s-%d yet, will try again: %s", topic, index, error)
                unsent.append((topic, index))
        on_sent(frozenset(unsent))
