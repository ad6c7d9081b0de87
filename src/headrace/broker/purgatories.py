"""The requests that wait for an event of a partition, by topic and partition."""

from __future__ import annotations

from headrace.runtime.purgatory import Purgatory
from headrace.runtime.timer import Timer

PartitionPurgatory = Purgatory[tuple[str, int]]


class Purgatories:
    def __init__(self, timer: Timer) -> None:
        #: Fetch requests that wait for records.
        self.fetch: PartitionPurgatory = Purgatory("Fetch", timer)
        #: Produce requests with acks=all that wait for the high watermark.
        self.produce: PartitionPurgatory = Purgatory("Produce", timer)
        #: DeleteRecords requests that wait for the followers.
        self.delete_records: PartitionPurgatory = Purgatory("DeleteRecords", timer)
