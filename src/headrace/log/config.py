"""Holds the settings of one topic's logs, under the names of Kafka's topic configs and with Kafka's defaults.

A log reads its ``config`` at every step. So a changed setting is a new object that is assigned to ``log.config``.
"""

from dataclasses import dataclass, field

FOREVER = -1
UNLIMITED = 2**63 - 1
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1_073_741_824
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = FOREVER
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = UNLIMITED
    flush_messages: int = UNLIMITED
    flush_ms: int = UNLIMITED
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = UNLIMITED
    message_timestamp_after_max_ms: int = 3_600_000
    max_message_bytes: int = 1_048_588
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    #: Headrace's own setting: check every record of every batch, and not only the header.
    walk_records: bool = False
    producer_id_expiration_ms: int = DAY_MS
    #: Whether the records of a client's batch are read before the batch goes to disk.
    reads_records: bool = field(init=False)
    #: Whether a client's batch goes to disk as it came. Then only its header is checked.
    keeps_batches_unchanged: bool = field(init=False)
    #: After how long a segment is finished. For a compacted log, ``max.compaction.lag.ms`` limits that time, because
    #: the cleaner reads finished segments only.
    roll_ms: int = field(init=False)

    def __post_init__(self) -> None:
        reads_records = (
            self.compression_type != "producer"
            or self.is_compacted
            or self.walk_records
            or self.message_timestamp_before_max_ms != UNLIMITED
        )
        object.__setattr__(self, "reads_records", reads_records)
        object.__setattr__(self, "keeps_batches_unchanged", not reads_records and not self.is_log_append_time)
        roll_ms = min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms
        object.__setattr__(self, "roll_ms", roll_ms)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
