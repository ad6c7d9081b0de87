"""Runs a transaction coordinator without a broker: real logs in a folder, a clock that the test moves, and crashes.

Topics: ``t`` with two partitions, ``__transaction_state`` with one, and ``__consumer_offsets`` with one, which has its
group coordinator too. ``kill`` leaves the files of a killed process; ``open`` starts again on them.
"""

from types import SimpleNamespace

from headrace.groups.committed_offsets import TopicCommit
from headrace.groups.context import GroupContext
from headrace.groups.coordinator import GroupCoordinator
from headrace.log.config import LogConfig
from headrace.log.log_manager import LogManager
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record, decode_records
from headrace.protocol.records import iter_headers
from headrace.replication.journal import Journal
from headrace.replication.partition import Isolation, Partition
from headrace.replication.partitions import Partitions
from headrace.runtime.timer import Timer
from headrace.testing import ManualClock
from headrace.transactions.coordinator import ProducerIdentity, ProducerIdNeeded, TransactionCoordinator
from headrace.transactions.markers import LocalMarkerWriter
from headrace.transactions.shard import TransactionContext

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
T0, T1, GROUP = ("t", 0), ("t", 1), (OFFSETS, 0)
TIMEOUT_MS = 60_000
ABORT_KEY = b"\x00\x00\x00\x00"


class TransactionCoordinatorHarness:
    def __init__(self, folder, disk=None, config=None):
        self.folder = folder
        self.config = config or LogConfig()
        self.clock = ManualClock()
        self.next_producer_id = 1000
        self.logs = None
        self.open(disk)

    # -- life

    def open(self, disk=None):
        config = self.config
        self.disk = disk
        self.logs = LogManager(
            [self.folder],
            default_config=config,
            clock=self.clock,
            broker_id=1,
            cluster_id="cluster",
            disk=disk,
            on_offline=lambda path, error: None,
        )
        self.logs.load()
        self.partitions = Partitions()
        for topic, index in (T0, T1, GROUP, (STATE, 0)):
            log = self.logs.get(topic, index) or self.logs.create(topic, index, None)
            self.partitions.add(Partition(log, 0))
        self.timer = Timer(self.clock)
        settings = SimpleNamespace(int=lambda name: 10_080)
        self.groups = GroupCoordinator(GroupContext(self.clock, self.timer, settings, None), lambda: 1)
        self.markers = LocalMarkerWriter(self.partitions, self.clock, self._marker_written)
        self.coordinator = TransactionCoordinator(TransactionContext(self.clock, self.timer, self.markers), lambda: 1)

    def load(self):
        for _ in self.groups.load(self.journal(OFFSETS)):
            pass
        for _ in self.coordinator.load(self.journal(STATE)):
            pass
        return self

    def journal(self, topic):
        return Journal(self.partitions.leader(topic, 0), self.clock)

    def kill(self):
        if self.logs is not None:
            self.logs.abandon()
            self.logs = None

    def restart(self, disk=None):
        self.kill()
        self.open(disk)
        return self.load()

    def pass_ms(self, by_ms):
        self.clock.advance(by_ms)
        while self.timer.advance():
            pass

    def _marker_written(self, topic, index, marker):
        if topic == OFFSETS:
            self.groups.transaction_ended(index, marker.producer_id, marker.is_commit)

    # -- what a producer does

    def _with_id(self, ask):
        try:
            return ask(None)
        except ProducerIdNeeded:
            self.next_producer_id += 1
            return ask(self.next_producer_id)

    def start(self, name="x", *, known=None, timeout_ms=TIMEOUT_MS):
        start = self.coordinator.start_producer
        return self._with_id(lambda fresh: start(name, timeout_ms, known=known, fresh_producer_id=fresh))

    def add(self, producer, *partitions, name="x", version=0):
        self.coordinator.add_partitions(name, producer, partitions, client_version=version)

    def end(self, producer, *, commit=True, name="x", version=0):
        end = self.coordinator.end
        return self._with_id(
            lambda fresh: end(name, producer, is_commit=commit, client_version=version, fresh_producer_id=fresh)
        )

    def write(self, producer, partition, value, sequence=0):
        batch = build_batch(
            [Record(0, self.clock.wall_ms(), b"k", value, ())],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        self.partitions.leader(*partition).append(batch)

    def commit_offset(self, producer, offset, group="g"):
        shard = self.groups.shard_for(group)
        records = shard.offsets.commit_records(group, [TopicCommit("t", None, [(0, offset, -1, "")])])
        shard.write(records, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)

    # -- what others see

    def state(self, name="x"):
        return self.coordinator.describe(name).state

    def identity(self, name="x"):
        found = self.coordinator.describe(name)
        return ProducerIdentity(found.producer_id, found.producer_epoch)

    def committed(self, partition):
        """The values that a read_committed reader gets."""
        found = self.partitions.leader(*partition)
        end = found.visible_end(Isolation.READ_COMMITTED)
        region = found.log.read(0, 1 << 20, until_offset=end).region
        data = b"" if region is None else region.read()
        aborted = [(each.first_offset, each.producer_id) for each in found.log.aborted_transactions(0, end)]
        values, skipped = [], set()
        for position, header in iter_headers(data):
            skipped |= {producer_id for first, producer_id in aborted if first == header.base_offset}
            records = decode_records(data[position : position + header.size_bytes])
            if header.is_control:
                if records[0].key == ABORT_KEY:
                    skipped.discard(header.producer_id)
            elif header.producer_id not in skipped:
                values += [record.value for record in records]
        return values

    def offset(self, group="g"):
        found = self.groups.shard_for(group).offsets.committed(group, "t", 0)
        return None if found is None else found.offset

    def is_all_stable(self):
        return all(partition.log.last_stable_offset == partition.log.next_offset for partition in self.partitions)
