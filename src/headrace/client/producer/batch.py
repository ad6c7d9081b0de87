"""A batch of records that is being filled, and then sent as often as it takes.

Records are kept as columns while the batch is open and encoded together when it closes (``record_encoding.py``), which
lets go of the columns; a batch that waits to be sent is bytes. Its size while open is a bound, a few percent above
what it will be. ``batch.size`` counts the bytes before compression: they are what is held in memory until then.

What the broker gets is ``head`` and ``records``: the 61 bytes of the batch's header, which sealing writes, and what
follows them. A record costs no Python object of its own: who wants to hear of it has the batch and its place in the
batch (``delivery.py``), or leaves a slot, kept with that place.

A batch is open, then closed, then done: once ``is_settled`` is set, ``base_offset`` or ``error`` say how it ended, or
``parts`` where else its records are. It may be sealed more than once: a producer that was given a new epoch numbers
its batches anew.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.client.producer.encoded_batch import EncodedBatch
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
#: What a timestamp may take more than those that are near the batch's first.
_FAR_TIME_BYTES = 8
NO_OFFSET = -1
NOBODY = -1


class ProducerBatch:
    __slots__ = (
        "attempts", "base_offset", "base_sequence", "base_timestamp_ms", "created_ms", "done_future", "encoded_count",
        "error", "fresh_from_s", "fresh_until_s", "head", "headers", "is_done", "is_open", "is_ripe", "is_settled",
        "keys", "last_timestamp_ms", "limit_bytes", "listeners", "log_append_time_ms", "max_timestamp_ms", "number",
        "packed", "partition", "parts", "plain_limit_bytes", "records", "reserved_bytes", "retry_at_ms", "sent_bytes",
        "sent_to", "slots", "times", "topic", "used_bytes", "values",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, *, limit_bytes: int, reserved_bytes: int, created_ms: int, number: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        #: The broker that was last asked to take it.
        self.sent_to = NOBODY
        self.limit_bytes = limit_bytes
        #: The same while a record that is but a value needs no closer look: 0 once the batch has keys, or is closed.
        self.plain_limit_bytes = limit_bytes
        self.reserved_bytes = reserved_bytes
        self.created_ms = created_ms
        #: Grows with each new batch; the parts of a split one keep it. A flush waits for all up to some number.
        self.number = number
        self.is_open = True
        #: It is open, but has all that it waited for: it goes as soon as a broker takes it.
        self.is_ripe = False
        self.is_done = False
        # -- while it is open
        self.used_bytes = HEADER_BYTES
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: dict[int, Headers] = {}
        #: Runs of timestamps: from which record on, and what.
        self.times: list[tuple[int, int]] = []
        self.last_timestamp_ms: int | None = None
        #: Seconds between which the present is still the timestamp of the last record.
        self.fresh_from_s = self.fresh_until_s = 0.0
        # -- once it is closed
        self.encoded_count = 0
        self.base_timestamp_ms = 0
        self.max_timestamp_ms = 0
        self.records: bytes | memoryview = b""
        #: The records in their codec, once sealed in one that is not ``none``.
        self.packed: bytes | None = None
        self.head = b""
        self.sent_bytes = 0
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        #: Until then it backs off; of meaning only after a failed attempt.
        self.retry_at_ms = created_ms
        # -- who waits, and for what
        self.slots: list[tuple[int, object]] = []
        #: Called once, when the batch is settled; see ``delivery.py``.
        self.listeners: list[Callable[[], object]] = []
        self.done_future: Future[None] | None = None
        #: Whether how it ended is known to its users; ``is_done`` says it to the accumulator.
        self.is_settled = False
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = -1
        #: Until it is settled, why it failed last.
        self.error: Exception | None = None
        #: The first record of each part, and the part.
        self.parts: list[tuple[int, ProducerBatch]] = []

    @classmethod
    def of_encoded(
        cls, topic: str, encoded: EncodedBatch, *, reserved_bytes: int, created_ms: int, number: int
    ) -> "ProducerBatch":
        """Makes a closed batch of records that the caller has encoded."""
        assert encoded.record_count, "an empty batch is never sent"
        size_bytes = encoded.size_bytes
        batch = cls(
            topic, encoded.partition, limit_bytes=size_bytes, reserved_bytes=reserved_bytes, created_ms=created_ms,
            number=number,
        )  # fmt: skip
        batch.records = memoryview(encoded.body)[HEADER_BYTES:]
        batch.packed = encoded.compressed_records
        batch.used_bytes = size_bytes
        batch.encoded_count = encoded.record_count
        batch.base_timestamp_ms, batch.max_timestamp_ms = encoded.base_timestamp_ms, encoded.max_timestamp_ms
        batch.is_open, batch.plain_limit_bytes = False, 0
        return batch

    # ---------------------------------------------------------------------------------------------------- what it is

    @property
    def record_count(self) -> int:
        return self.encoded_count or len(self.values)

    @property
    def size_bytes(self) -> int:
        """What it takes in a request; while open, at most."""
        return self.sent_bytes or self.used_bytes

    @property
    def is_full(self) -> bool:
        return not self.is_open or self.is_ripe or self.used_bytes >= self.limit_bytes

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
        """The whole batch as it goes to the broker, once sealed."""
        return b"".join((self.head, self.records if self.packed is None else self.packed)) if self.head else b""

    def timestamp_ms_of(self, index: int) -> int:
        """Of a record of its own; -1 where the batch came encoded and does not know."""
        if not self.times:
            return self.base_timestamp_ms if self.base_timestamp_ms == self.max_timestamp_ms else -1
        return self.times[bisect_right(self.times, index, key=lambda run: run[0]) - 1][1]

    # ------------------------------------------------------------------------------------------------------- filling

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers, slot: object) -> bool:
        """False: there is no room left, and nothing was changed. A batch without records has room for any one.

        Bytes are kept as they are, not copied; the producer has seen to it that they are bytes.
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
        # Ctrl-C may come between any two lines: the record is there once its value is, and what was left by one that
        # did not come so far is overwritten.
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
        if slot is not None:
            self.slots.append((index, slot))
        return True

    def grow(self, by_bytes: int) -> None:
        """Has room for so much more, which is reserved."""
        self.limit_bytes += by_bytes
        self.plain_limit_bytes = self.limit_bytes if self.keys is None else 0
        self.reserved_bytes += by_bytes
        self.is_ripe = True

    def add_time(self, index: int, timestamp_ms: int) -> None:
        """From this record on, until told otherwise, they are of that time."""
        self.times.append((index, timestamp_ms))
        self.last_timestamp_ms = timestamp_ms
        self.fresh_from_s, self.fresh_until_s = timestamp_ms / 1000, (timestamp_ms + 1) / 1000

    def close(self) -> None:
        """Takes no more records; those that it has become bytes."""
        self.is_open = False
        self.plain_limit_bytes = 0
        if self.encoded_count:
            return
        assert self.values, "an empty batch is never sent"
        self.records = encode_quickly(self.values, self.keys, self.headers, self.times)
        self.used_bytes = HEADER_BYTES + len(self.records)
        self.base_timestamp_ms = self.times[0][1]
        self.max_timestamp_ms = max(ms for _, ms in self.times)
        self.encoded_count = len(self.values)  # Whoever was interrupted before this leaves it to the next.
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
        """Close the batch and make ``data`` what the broker is to have."""
        if not self.encoded_count:
            self.close()
        self.base_sequence = base_sequence
        records = self.records
        if codec is not Codec.none:
            if self.packed is None:
                self.packed = compress(codec, memoryview(self.records), level)
            records = self.packed
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
        """Takes back the number that it was given, so that it gets another."""
        self.base_sequence, self.head = NO_SEQUENCE, b""

    # -------------------------------------------------------------------------------------------------------- ending

    def succeed(self, base_offset: int, log_append_time_ms: int = -1) -> None:
        self.base_offset, self.log_append_time_ms = base_offset, log_append_time_ms
        self.error = None
        self.is_settled = True

    def give_up(self, error: Exception) -> None:
        self.error = error
        self.is_settled = True

    def split(self) -> list["ProducerBatch"]:
        """The same records in batches of at most half the size, for a broker that found this one too large.

        The memory and the sequences of this batch are shared out among the parts; their slots move along.
        """
        assert self.record_count > 1, "one record cannot be split"
        limit_bytes = HEADER_BYTES + (self.used_bytes - HEADER_BYTES + 1) // 2
        slots = self._slots_by_place()
        parts: list[ProducerBatch] = []
        places: list[tuple[int, ProducerBatch]] = []
        sequence = self.base_sequence
        for index, record in enumerate(decode_records(self.data)):
            fields = record.timestamp_ms, record.key, record.value, record.headers
            if not parts or not parts[-1].append(*fields, None):
                parts.append(self._part(limit_bytes))
                parts[-1].append(*fields, None)
                places.append((index, parts[-1]))
            parts[-1].slots += [(parts[-1].record_count - 1, slot) for slot in slots.get(index, ())]
        for part in parts:
            part.close()
            part.reserved_bytes = self.reserved_bytes // len(parts)
            if self.has_sequence:
                part.base_sequence = sequence
                sequence = part.next_sequence
        parts[0].reserved_bytes += self.reserved_bytes % len(parts)
        self.reserved_bytes = 0
        self.slots, self.parts = [], places
        self.is_done = self.is_settled = True
        self.records, self.packed = b"", None
        return parts

    def _slots_by_place(self) -> dict[int, list[object]]:
        slots: dict[int, list[object]] = {}
        for index, slot in self.slots:
            slots.setdefault(index, []).append(slot)
        return slots

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
    """The most that a record can take in a batch of its own, header of the batch included."""
    size_bytes = HEADER_BYTES + bound_bytes(len(value or b""), len(key or b""))
    return size_bytes + len(encode_headers(headers)) if headers else size_bytes
