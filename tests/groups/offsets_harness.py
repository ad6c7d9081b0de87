"""Runs committed offsets without a broker: every record that is written is applied at once."""

from types import SimpleNamespace
from uuid import UUID

from headrace.groups.committed_offsets import CommittedOffsets, TopicCommit
from headrace.testing import ManualClock

RETENTION_MS = 10_080 * 60_000
TOPIC_ID = UUID(int=7)


class Settings:
    """Kafka's defaults, and the settings of a test."""

    def __init__(self, **values):
        self.values = {"offsets.retention.minutes": 10_080, **values}

    def int(self, name):
        return self.values[name]


class OffsetsHarness:
    """``log`` is what was written: (producer id or None, key, value), or (producer id, is committed) for a marker."""

    def __init__(self):
        self.clock = ManualClock()
        self.log = []
        self.first = []
        self.context = SimpleNamespace(clock=self.clock, settings=Settings())
        self.offsets = CommittedOffsets(self.context, on_first=self.first.append)

    def write(self, records, producer_id=None):
        for key, value in records:
            self.log.append((producer_id, key, value))
            apply(self.offsets, self.log[-1])

    def commit(self, offset, *, group="g", topic="t", partition=0, producer_id=None, epoch=-1, metadata="", **fields):
        commit = TopicCommit(topic, TOPIC_ID, [(partition, offset, epoch, metadata)])
        self.write(self.offsets.commit_records(group, [commit], **fields), producer_id)

    def ends(self, producer_id, *, committed):
        self.log.append((producer_id, committed))
        apply(self.offsets, self.log[-1])

    def at(self, group="g", topic="t", partition=0):
        found = self.offsets.committed(group, topic, partition)
        return None if found is None else found.offset

    @property
    def offset_count(self):
        return sum(self.offsets.count_of(group) for group in set(self.first))

    def replayed(self):
        """The offsets that a restart loads from the same log."""
        fresh = CommittedOffsets(self.context)
        for entry in self.log:
            apply(fresh, entry)
        return fresh


def apply(offsets, entry):
    if len(entry) == 2:
        offsets.complete(entry[0], committed=entry[1])
    elif entry[0] is None:
        offsets.apply(*entry[1:])
    else:
        offsets.apply_pending(*entry)
