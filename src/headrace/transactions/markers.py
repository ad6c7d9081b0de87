"""Markers: the control batches that end a transaction in each of its partitions.

A marker is one control record behind the transaction's last one (layout: ``log/control_marker.py``). Readers with
``read_committed`` get what lies before a commit marker, and pass over what an abort marker ends. Writing one twice
does no harm: the second ends nothing. So after a crash all are written again.
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
    producer_id: int
    producer_epoch: int
    is_commit: bool
    #: The leader epoch of the coordinator's partition: an older coordinator's marker is refused.
    coordinator_epoch: int

    def batch(self, now_ms: int) -> bytes:
        kind = ControlKind.commit if self.is_commit else ControlKind.abort
        return build_batch(
            [control_record(kind, self.coordinator_epoch, timestamp_ms=now_ms)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=NO_SEQUENCE,
            is_transactional=True,
            is_control=True,
        )


#: Called once, with the partitions that have no marker yet and may have it later.
Sent = Callable[[frozenset[TopicPartition]], None]


#: A marker that is refused so is not needed any more: a newer producer or coordinator has seen to the transaction.
OBSOLETE = (InvalidProducerEpoch, TransactionCoordinatorFenced)


class MarkerSender(Protocol):
    def send(self, marker: Marker, partitions: Iterable[TopicPartition], on_sent: Sent) -> None: ...


class LocalMarkers:
    """Writes markers to the partitions that this broker leads; if it is alone, these are all that there are."""

    def __init__(
        self, partitions: Partitions, clock: Clock, on_written: Callable[[str, int, Marker], object] = lambda *_: None
    ) -> None:
        """``on_written`` hears of each marker: readers wait for it, and groups whose offsets it commits."""
        self._partitions = partitions
        self._clock = clock
        self._on_written = on_written

    def write(self, topic: str, index: int, marker: Marker) -> tuple[Partition, int]:
        """The partition, and the offset behind the marker: it is committed when the high watermark is there.

        :raises KafkaError: if the partition is not here, or a newer producer or coordinator was.
        """
        partition = self._partitions.leader(topic, index)
        partition.check_enough_replicas()
        partition.append(marker.batch(self._clock.wall_ms()), Origin.COORDINATOR)
        self._on_written(topic, index, marker)
        return partition, partition.log.next_offset

    def send(self, marker: Marker, partitions: Iterable[TopicPartition], on_sent: Sent) -> None:
        unsent = []
        for topic, index in sorted(partitions):
            if self._partitions.get(topic, index) is None and not self._partitions.is_lost(topic, index):
                continue  # its topic was deleted
            try:
                self.write(topic, index, marker)
            except OBSOLETE as error:
                logger.info("no marker for %s-%d: %s", topic, index, error)  # it has a newer one
            except (KafkaError, OSError) as error:
                logger.warning("no marker for %s-%d yet: %s", topic, index, error)
                unsent.append((topic, index))
        on_sent(frozenset(unsent))
