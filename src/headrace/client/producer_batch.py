"""A batch of records that is being filled, and then sent as often as it takes.

Records are encoded as they come, into one bytearray that begins with 61 empty bytes; sealing the batch writes the
header there, so that an uncompressed batch is never copied. The layouts are in ``protocol/records.py`` and
``protocol/record_body.py``. A record costs no Python object of its own: who wants to hear of one record leaves a slot
(a future, a callback: the batch does not care), kept with the record's index in the batch.

``batch.size`` counts the bytes before compression: they are what is held in memory until the batch is sealed.

A batch is open, then closed (the first time it is drained), then done. It may be sealed more than once: a producer
that was given a new epoch numbers its batches anew.
"""

from struct import Struct

from headrace.protocol.compression import compress
from headrace.protocol.record_body import Headers, decode_records, write_varint
from headrace.protocol.records import (
    CRC_FIELD_AT,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Codec,
    compute_crc,
)

_CRC = Struct(">I")
_EMPTY_HEADER = bytes(HEADER_BYTES)
_TRANSACTIONAL = 0x10
_SEQUENCES = 2**31

#: The numbers 0 to 8191 as varints: all that are not negative and take one byte or two.
_VARINTS = [bytes((number << 1,)) for number in range(64)] + [
    bytes((number << 1 & 0x7F | 0x80, number >> 6)) for number in range(64, 8192)
]
_LISTED = len(_VARINTS)


class ProducerBatch:
    __slots__ = (
        "attempts", "base_sequence", "base_timestamp_ms", "body", "created_ms", "data", "is_done", "is_open",
        "limit_bytes", "max_timestamp_ms", "number", "packed", "partition", "record_count",
        "reserved_bytes", "retry_at_ms", "slots", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, *, limit_bytes: int, reserved_bytes: int, created_ms: int, number: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.limit_bytes = limit_bytes
        self.reserved_bytes = reserved_bytes
        self.created_ms = created_ms
        #: Grows with each new batch; the parts of a split one keep it. A flush waits for all up to some number.
        self.number = number
        self.body = bytearray(_EMPTY_HEADER)
        self.record_count = 0
        self.base_timestamp_ms = 0
        self.max_timestamp_ms = 0
        self.slots: list[tuple[int, object]] = []
        self.is_open = True
        self.is_done = False
        self.attempts = 0
        #: Until then it backs off; of meaning only after a failed attempt.
        self.retry_at_ms = created_ms
        self.base_sequence = NO_SEQUENCE
        #: The records in their codec, once sealed in one that is not ``none``.
        self.packed: bytes | None = None
        #: The whole batch as it goes to the broker, once sealed.
        self.data: bytes | bytearray = b""

    @property
    def size_bytes(self) -> int:
        return len(self.data) or len(self.body)

    @property
    def is_full(self) -> bool:
        return not self.is_open or len(self.body) >= self.limit_bytes

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        return (self.base_sequence + self.record_count) % _SEQUENCES

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers, slot: object) -> bool:
        """False: there is no room left, and nothing was changed. A batch without records has room for any one."""
        count = self.record_count
        if count:
            delta_ms = timestamp_ms - self.base_timestamp_ms
        else:
            delta_ms, self.base_timestamp_ms = 0, timestamp_ms
        # This runs for every record: a listed varint is a fifth of the price of a call.
        time = _VARINTS[delta_ms] if 0 <= delta_ms < _LISTED else write_varint(delta_ms)
        index = _VARINTS[count] if count < _LISTED else write_varint(count)
        if key is None:
            key_size, key = b"\x01", b""
        else:
            size = len(key)
            key_size = _VARINTS[size] if size < _LISTED else write_varint(size)
        if value is None:
            value_size, value = b"\x01", b""
        else:
            size = len(value)
            value_size = _VARINTS[size] if size < _LISTED else write_varint(size)
        tail = b"\x00" if not headers else _encode_headers(headers)
        record = b"".join((b"\x00", time, index, key_size, key, value_size, value, tail))
        size = len(record)
        length = _VARINTS[size] if size < _LISTED else write_varint(size)
        body = self.body
        if count and len(body) + size + len(length) > self.limit_bytes:
            return False
        body += length
        body += record
        self.record_count = count + 1
        if timestamp_ms > self.max_timestamp_ms or not count:
            self.max_timestamp_ms = timestamp_ms
        if slot is not None:
            self.slots.append((count, slot))
        return True

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
        assert self.record_count, "an empty batch is never sent"
        self.is_open = False
        self.base_sequence = base_sequence
        data = self.body
        if codec is not Codec.none:
            if self.packed is None:
                self.packed = compress(codec, memoryview(self.body)[HEADER_BYTES:], level)
            data = bytearray(_EMPTY_HEADER)
            data += self.packed
        size_bytes = len(data)
        HEADER.pack_into(
            data, 0, 0, size_bytes - LENGTH_PREFIX_BYTES, -1, MAGIC, 0, codec | (_TRANSACTIONAL * is_transactional),
            self.record_count - 1, self.base_timestamp_ms, self.max_timestamp_ms, producer_id, producer_epoch,
            base_sequence, self.record_count,
        )  # fmt: skip
        _CRC.pack_into(data, CRC_FIELD_AT, compute_crc(data, 0, size_bytes))
        self.data = data

    def split(self) -> list["ProducerBatch"]:
        """The same records in batches of at most half the size, for a broker that found this one too large.

        The memory and the sequences of this batch are shared out among the parts; their slots move along.
        """
        assert self.record_count > 1, "one record cannot be split"
        limit_bytes = HEADER_BYTES + (len(self.body) - HEADER_BYTES + 1) // 2
        slots: dict[int, object] = dict(self.slots)
        parts: list[ProducerBatch] = []
        sequence = self.base_sequence
        for index, record in enumerate(decode_records(self.data)):
            fields = record.timestamp_ms, record.key, record.value, record.headers, slots.get(index)
            if parts and parts[-1].append(*fields):
                continue
            parts.append(self._part(limit_bytes))
            parts[-1].append(*fields)
        for part in parts:
            part.is_open = False
            part.reserved_bytes = self.reserved_bytes // len(parts)
            if self.has_sequence:
                part.base_sequence = sequence
                sequence = part.next_sequence
        parts[0].reserved_bytes += self.reserved_bytes % len(parts)
        self.reserved_bytes = 0
        self.is_done = True
        return parts

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
    size_bytes = HEADER_BYTES + 36 + len(key or b"") + len(value or b"")
    return size_bytes + len(_encode_headers(headers)) if headers else size_bytes


def _encode_headers(headers: Headers) -> bytes:
    encoded = bytearray(write_varint(len(headers)))
    for name, content in headers:
        raw = name.encode("utf-8", "surrogateescape")
        encoded += write_varint(len(raw))
        encoded += raw
        if content is None:
            encoded.append(1)
        else:
            encoded += write_varint(len(content))
            encoded += content
    return bytes(encoded)
