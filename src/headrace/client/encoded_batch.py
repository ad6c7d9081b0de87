"""A batch of records that the caller has encoded: what ``send_encoded`` takes, and what every layer below hands on."""

from typing import NamedTuple


class EncodedBatch(NamedTuple):
    """The records of one partition, encoded and not compressed.

    The layers do not copy ``body``, so the caller must not change ``body`` after it has handed over the batch.
    """

    partition: int
    #: 61 bytes of room for the batch's header, which is written when the batch is sent. Then the records in the layout
    #: of ``protocol/record_body.py``, with the offset deltas 0, 1, 2, ...
    body: bytes | bytearray | memoryview
    record_count: int
    #: The records' timestamp deltas count from here.
    base_timestamp_ms: int
    max_timestamp_ms: int
    #: The records compressed by the producer's codec, if the caller has compressed them already.
    compressed_records: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """The size without compression: the memory that the batch takes of ``buffer.memory``."""
        return len(self.body)
