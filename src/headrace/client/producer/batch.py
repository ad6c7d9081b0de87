"""A batch of records: it is filled, and then sent until a broker stores it or it fails.

An open batch keeps its records as columns. Closing encodes all records together (``record_encoding.py``) and frees the
columns, so a batch that waits to be sent is bytes. The size of an open batch is an upper bound, a few percent above the
encoded size. ``batch.size`` counts the bytes before compression, because these are held in memory until then.

A broker gets ``head`` and ``records``: the 61 bytes of the batch header, which :meth:`ProducerBatch.seal` writes, and
the records. A record costs no Python object of its own. A delivery refers to the batch and to the record's index in the
batch (``delivery.py``). A callback is stored together with that index.

A batch is first open, then closed, then done. Once ``is_settled`` is set, ``base_offset`` or ``error`` tells the
result; the records of a split batch are in its ``parts``. A batch may be sealed more than once: a producer with a new
epoch gives its batches new sequence numbers.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.client.encoded_batch import EncodedBatch
from headrace.client.producer.record_encoding import LISTED, bound_bytes, encode_headers, encode_quickly
from headrace.crc import crc32c
from headrace.protocol.compression import compress
from headrace.protocol.record_body import Headers, decode_records
from headrace.protocol.records import (
    CRC,
    CRC_FIELD_AT,
    CRC_STARTS_AT,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    Codec,
)

if TYPE_CHECKING:
    from asyncio import Future

_SEQUENCES = 2**31
#: The additional bytes of a timestamp that is far from the first one of the batch.
_FAR_TIME_BYTES = 8
NO_OFFSET = -1
NO_NODE = -1


class ProducerBatch:
    """One batch of one partition."""

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "callbacks",
        "compressed",
        "created_ms",
        "done_future",
        "encoded_count",
        "error",
        "fresh_from_s",
        "fresh_until_s",
        "head",
        "headers",
        "is_done",
        "is_open",
        "is_sendable",
        "is_settled",
        "keys",
        "last_timestamp_ms",
        "limit_bytes",
        "listeners",
        "log_append_time_ms",
        "max_timestamp_ms",
        "number",
        "partition",
        "parts",
        "plain_limit_bytes",
        "records",
        "reserved_bytes",
        "retry_at_ms",
        "sent_bytes",
        "sent_to_node",
        "times",
        "topic",
        "used_bytes",
        "values",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, *, limit_bytes: int, reserved_bytes: int, created_ms: int, number: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        #: The broker that the batch was last sent to.
        self.sent_to_node = NO_NODE
        self.limit_bytes = limit_bytes
        #: The limit for plain records, which have a value and nothing else. It is 0 once the batch has keys, or is
        #: closed: then plain records take the slower path too.
        self.plain_limit_bytes = limit_bytes
        self.reserved_bytes = reserved_bytes
        self.created_ms = created_ms
        #: See ``unfinished_batches.py``.
        self.number = number
        self.is_open = True
        #: Whether the batch, though still open, is sent as soon as a broker takes it.
        self.is_sendable = False
        self.is_done = False
        # -- while the batch is open
        self.used_bytes = HEADER_BYTES
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: dict[int, Headers] = {}
        #: Runs of equal timestamps: the index of the first record, and the timestamp.
        self.times: list[tuple[int, int]] = []
        self.last_timestamp_ms: int | None = None
        #: While the clock is between these two times, in seconds, a new record has the timestamp of the last one.
        self.fresh_from_s = self.fresh_until_s = 0.0
        # -- once the batch is closed
        self.encoded_count = 0
        self.base_timestamp_ms = 0
        self.max_timestamp_ms = 0
        self.records: bytes | memoryview = b""
        #: The compressed records, once the batch is sealed with a codec other than ``none``.
        self.compressed: bytes | None = None
        self.head = b""
        self.sent_bytes = 0
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        #: The end of the backoff after a failed attempt.
        self.retry_at_ms = created_ms
        # -- the result, and who waits for it
        #: The index of a record, and its on_delivery callback.
        self.callbacks: list[tuple[int, object]] = []
        #: Called once, when the batch is settled; see ``delivery.py``.
        self.listeners: list[Callable[[], object]] = []
        self.done_future: Future[None] | None = None
        #: Whether users may see the result. ``is_done`` is the accumulator's view.
        self.is_settled = False
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = -1
        #: The final error once the batch is settled; before that, the error of the last attempt.
        self.error: Exception | None = None
        #: The index of the first record of each part, and the part.
        self.parts: list[tuple[int, ProducerBatch]] = []

    @classmethod
    def of_encoded(
        cls,
        topic: str,
        encoded: EncodedBatch,
        *,
        reserved_bytes: int,
        created_ms: int,
        number: int,
    ) -> "ProducerBatch":
        """Makes a closed batch of records that are encoded already."""
        assert encoded.record_count, "an empty batch is never sent"
        size_bytes = len(encoded.body)
        batch = cls(
            topic, encoded.partition, limit_bytes=size_bytes, reserved_bytes=reserved_bytes, created_ms=created_ms,
            number=number,
        )  # fmt: skip
        batch.records = memoryview(encoded.body)[HEADER_BYTES:]
        batch.compressed = encoded.compressed_records
        batch.used_bytes = size_bytes
        batch.encoded_count = encoded.record_count
        batch.base_timestamp_ms, batch.max_timestamp_ms = encoded.base_timestamp_ms, encoded.max_timestamp_ms
        batch.is_open, batch.plain_limit_bytes = False, 0
        return batch

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def record_count(self) -> int:
        return self.encoded_count or len(self.values)

    @property
    def size_bytes(self) -> int:
        """The size of the batch in a request; an upper bound while the batch is open."""
        return self.sent_bytes or self.used_bytes

    @property
    def is_full(self) -> bool:
        return not self.is_open or self.is_sendable or self.used_bytes >= self.limit_bytes

    @property
    def is_sealed(self) -> bool:
        return bool(self.head)

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        return (self.base_sequence + self.record_count) % _SEQUENCES

    @property
    def data(self) -> bytes:
        """The whole batch as the broker gets it, once sealed."""
        return b"".join((self.head, self.records if self.compressed is None else self.compressed)) if self.head else b""

    def timestamp_ms_of(self, index: int) -> int:
        """Returns the timestamp of a record; -1 if the batch came encoded and the timestamp is not known."""
        if not self.times:
            return self.base_timestamp_ms if self.base_timestamp_ms == self.max_timestamp_ms else -1
        return self.times[bisect_right(self.times, index, key=lambda run: run[0]) - 1][1]

    # ------------------------------------------------------------------------------------------------------- filling

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers, on_delivery: object
    ) -> bool:
        """Appends a record. Returns False, and changes nothing, if there is no room left.

        An empty batch has room for any record. Key and value are not copied.
        """
        values = self.values
        index = len(values)
        used_bytes = self.used_bytes + bound_bytes(len(value or b""), len(key or b""))
        if headers:
            used_bytes += len(encode_headers(headers))
        if index and not 0 <= timestamp_ms - self.times[0][1] < LISTED:
            used_bytes += _FAR_TIME_BYTES
        if index and used_bytes > self.limit_bytes:
            return False
        self.used_bytes = used_bytes
        # A KeyboardInterrupt may come between any two lines. The record counts once its value is appended; the next
        # append overwrites what an interrupted one left behind.
        if self.keys is not None:
            self.keys[index:] = (key,)
        elif key is not None:
            self.plain_limit_bytes = 0
            self.keys = [None] * index
            self.keys.append(key)
        if headers:
            self.headers[index] = headers
        elif self.headers:
            self.headers.pop(index, None)
        values.append(value)
        if timestamp_ms != self.last_timestamp_ms:
            self.add_time(index, timestamp_ms)
        if on_delivery is not None:
            self.callbacks.append((index, on_delivery))
        return True

    def grow(self, by_bytes: int) -> None:
        """Makes room for more bytes, which are reserved."""
        self.limit_bytes += by_bytes
        self.plain_limit_bytes = self.limit_bytes if self.keys is None else 0
        self.reserved_bytes += by_bytes
        self.is_sendable = True

    def add_time(self, index: int, timestamp_ms: int) -> None:
        """Starts a run of records with this timestamp."""
        self.times.append((index, timestamp_ms))
        self.last_timestamp_ms = timestamp_ms
        self.fresh_from_s, self.fresh_until_s = timestamp_ms / 1000, (timestamp_ms + 1) / 1000

    def close(self) -> None:
        """Encodes the records. The batch takes no more."""
        self.is_open = False
        self.plain_limit_bytes = 0
        if self.encoded_count:
            return
        assert self.values, "an empty batch is never sent"
        self.records = encode_quickly(self.values, self.keys, self.headers, self.times)
        self.used_bytes = HEADER_BYTES + len(self.records)
        self.base_timestamp_ms = self.times[0][1]
        self.max_timestamp_ms = max(ms for _, ms in self.times)
        self.encoded_count = len(self.values)  # An interrupted call that did not come so far is repeated.
        self.values, self.keys, self.headers = [], None, {}

    def seal(
        self,
        codec: Codec = Codec.none,
        level: int | None = None,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
    ) -> None:
        """Closes the batch, compresses the records and writes the batch header."""
        if not self.encoded_count:
            self.close()
        self.base_sequence = base_sequence
        records = self.records
        if codec is not Codec.none:
            if self.compressed is None:
                self.compressed = compress(codec, memoryview(self.records), level)
            records = self.compressed
        count = self.encoded_count
        self.sent_bytes = HEADER_BYTES + len(records)
        head = bytearray(
            HEADER.pack(
                0, self.sent_bytes - LENGTH_PREFIX_BYTES, -1, MAGIC, 0, codec | (TRANSACTIONAL * is_transactional),
                count - 1, self.base_timestamp_ms, self.max_timestamp_ms, producer_id, producer_epoch, base_sequence,
                count,
            )
        )  # fmt: skip
        CRC.pack_into(head, CRC_FIELD_AT, crc32c(records, crc32c(memoryview(head)[CRC_STARTS_AT:])))
        self.head = bytes(head)

    def unseal(self) -> None:
        """Removes the sequence number, so that the batch gets another one."""
        self.base_sequence, self.head = NO_SEQUENCE, b""

    # -------------------------------------------------------------------------------------------------------- results

    def succeed(self, base_offset: int, log_append_time_ms: int = -1) -> None:
        self.base_offset, self.log_append_time_ms = base_offset, log_append_time_ms
        self.error = None
        self.is_settled = True

    def give_up(self, error: Exception) -> None:
        self.error = error
        self.is_settled = True

    def split(self) -> list["ProducerBatch"]:
        """Returns the same records in batches of at most half the size, because the broker found this one too large.

        The parts share the memory and the sequence numbers of this batch, and take over its callbacks.
        """
        assert self.record_count > 1, "one record cannot be split"
        limit_bytes = HEADER_BYTES + (self.used_bytes - HEADER_BYTES + 1) // 2
        callbacks = self._callbacks_by_index()
        parts: list[ProducerBatch] = []
        places: list[tuple[int, ProducerBatch]] = []
        sequence = self.base_sequence
        for index, record in enumerate(decode_records(self.data)):
            fields = record.timestamp_ms, record.key, record.value, record.headers
            if not parts or not parts[-1].append(*fields, None):
                parts.append(self._part(limit_bytes))
                parts[-1].append(*fields, None)
                places.append((index, parts[-1]))
            parts[-1].callbacks += [
                (parts[-1].record_count - 1, on_delivery) for on_delivery in callbacks.get(index, ())
            ]
        for part in parts:
            part.close()
            part.reserved_bytes = self.reserved_bytes // len(parts)
            if self.has_sequence:
                part.base_sequence = sequence
                sequence = part.next_sequence
        parts[0].reserved_bytes += self.reserved_bytes % len(parts)
        self.reserved_bytes = 0
        self.callbacks, self.parts = [], places
        self.is_done = self.is_settled = True
        self.records, self.compressed = b"", None
        return parts

    def _callbacks_by_index(self) -> dict[int, list[object]]:
        callbacks: dict[int, list[object]] = {}
        for index, on_delivery in self.callbacks:
            callbacks.setdefault(index, []).append(on_delivery)
        return callbacks

    def _part(self, limit_bytes: int) -> "ProducerBatch":
        return ProducerBatch(
            self.topic,
            self.partition,
            limit_bytes=limit_bytes,
            reserved_bytes=0,
            created_ms=self.created_ms,
            number=self.number,
        )


def record_bound_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Returns the most bytes that a record can take in a batch of its own, with the batch header."""
    size_bytes = HEADER_BYTES + bound_bytes(len(value or b""), len(key or b""))
    return size_bytes + len(encode_headers(headers)) if headers else size_bytes
