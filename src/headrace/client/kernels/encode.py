"""Encodes Arrow columns to record batches, without the interpreter lock or an object per record.

``hash_rows``      computes the partition of each row with a key, by murmur2 as in Java (``partitioners/murmur2.py``).
``spread_rows``    gives the rows without a key to partitions in turn, about one batch at a time.
``order_rows``     sorts the rows by partition, and keeps their order within each partition.
``encode_batches`` writes the batches, each behind 61 bytes of room for its header.

A column consists of 64-bit offsets, the address of its data, and one byte per row that says whether there is a value.
If these bytes are missing, all rows have a value. A column without offsets has only nulls. Arrow guarantees that the
offsets grow and lie within the data.
"""

from typing import TYPE_CHECKING

from headrace.client.kernels.compiling import copy_bytes, inlined, kernel, load_byte, load_word, store_byte

if TYPE_CHECKING:
    from numpy import int32, int64, uint8
    from numpy.typing import NDArray

__all__ = ["DESCRIPTION_FIELDS", "encode_batches", "hash_rows", "order_rows", "spread_rows"]

#: The description of a batch by ``encode_batches``. ``start`` is the start of the room for the header.
DESCRIPTION_FIELDS = ("partition", "start", "end", "record_count", "base_timestamp", "max_timestamp")

#: The usual number of bytes of a record in addition to its data.
USUAL_OVERHEAD_BYTES = 14
_HEADER_BYTES = 61
_SEED, _FACTOR, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFF_FFFF


@inlined
def _is_null(offsets: "NDArray[int64]", is_valid: "NDArray[uint8]", row: int) -> bool:
    return offsets.shape[0] == 0 or (is_valid.shape[0] != 0 and not is_valid[row])


@inlined
def _murmur2(address: int, size_bytes: int) -> int:
    hashed = _SEED ^ size_bytes
    end = address + (size_bytes & ~3)
    while address < end:
        mixed = load_word(address) * _FACTOR & _MASK
        hashed = (hashed * _FACTOR ^ (mixed ^ mixed >> 24) * _FACTOR) & _MASK
        address += 4
    rest = size_bytes & 3
    if rest:
        tail = load_byte(address)
        if rest > 1:
            tail |= load_byte(address + 1) << 8
        if rest > 2:
            tail |= load_byte(address + 2) << 16
        hashed = (hashed ^ tail) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15


@kernel("int64(int64[::1], int64, uint8[::1], int64, int32[::1])")
def hash_rows(
    key_offsets: "NDArray[int64]",
    key_data: int,
    key_is_valid: "NDArray[uint8]",
    partition_count: int,
    partitions: "NDArray[int32]",
) -> int:
    """Fills the partitions, with -1 for rows without a key. Returns the number of these rows."""
    missing = 0
    for row in range(partitions.shape[0]):
        if _is_null(key_offsets, key_is_valid, row):
            partitions[row] = -1
            missing += 1
        else:
            start = key_offsets[row]
            hashed = _murmur2(key_data + start, key_offsets[row + 1] - start)
            partitions[row] = (hashed & 0x7FFF_FFFF) % partition_count
    return missing


@kernel("int64(int64[::1], int64, int32[::1], int64, int32[::1])")
def spread_rows(
    value_offsets: "NDArray[int64]", run_bytes: int, choices: "NDArray[int32]", turn: int, partitions: "NDArray[int32]"
) -> int:
    """Gives the rows with partition -1 to the choices in turn, about ``run_bytes`` each time. Returns the next turn.

    A run ends by the total number of bytes before it, so that the bytes of n runs make exactly n runs.
    """
    before_bytes = used_runs = 0
    for row in range(partitions.shape[0]):
        if partitions[row] >= 0:
            continue
        used_runs = before_bytes // run_bytes
        partitions[row] = choices[(turn + used_runs) % choices.shape[0]]
        before_bytes += USUAL_OVERHEAD_BYTES
        if value_offsets.shape[0]:
            before_bytes += value_offsets[row + 1] - value_offsets[row]
    return turn + used_runs + 1


@kernel("int64(int32[::1], int64, int64[::1])")
def order_rows(partitions: "NDArray[int32]", partition_count: int, order: "NDArray[int64]") -> int:
    """Fills the order. Returns -1 if a partition number is out of range; then the order is not valid."""
    # Counting sort: the rows of a partition come behind the rows of all smaller ones.
    places = [0] * (partition_count + 1)
    for row in range(partitions.shape[0]):
        partition = partitions[row]
        if partition < 0 or partition >= partition_count:
            return -1
        places[partition + 1] += 1
    for partition in range(partition_count):
        places[partition + 1] += places[partition]
    for row in range(partitions.shape[0]):
        partition = partitions[row]
        order[places[partition]] = row
        places[partition] += 1
    return 0


@inlined
def _varint_bytes(value: int) -> int:
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest < 0 or rest >= 0x80:
        rest = (rest >> 7) & 0x01FF_FFFF_FFFF_FFFF
        size += 1
    return size


@inlined
def _write_varint(address: int, value: int) -> int:
    """Writes a varint, and returns the address behind it."""
    rest = (value << 1) ^ (value >> 63)
    while rest < 0 or rest >= 0x80:
        store_byte(address, rest & 0x7F | 0x80)
        rest = (rest >> 7) & 0x01FF_FFFF_FFFF_FFFF
        address += 1
    store_byte(address, rest)
    return address + 1


@inlined
def _write_field(address: int, source: int, size_bytes: int) -> int:
    """Writes a length and its data; a negative size means null. Returns the address behind it."""
    address = _write_varint(address, size_bytes)
    if size_bytes > 0:
        copy_bytes(address, source, size_bytes)
        address += size_bytes
    return address


@inlined
def _field_bytes(size_bytes: int) -> int:
    return _varint_bytes(size_bytes) + (size_bytes if size_bytes > 0 else 0)


@inlined
def _headers_bytes(
    first: int,
    last: int,
    name_offsets: "NDArray[int64]",
    content_offsets: "NDArray[int64]",
    content_is_valid: "NDArray[uint8]",
) -> int:
    size_bytes = _varint_bytes(last - first)
    for header in range(first, last):
        size_bytes += _field_bytes(name_offsets[header + 1] - name_offsets[header])
        if _is_null(content_offsets, content_is_valid, header):
            size_bytes += 1
        else:
            size_bytes += _field_bytes(content_offsets[header + 1] - content_offsets[header])
    return size_bytes


@inlined
def _write_headers(
    position: int,
    first: int,
    last: int,
    name_offsets: "NDArray[int64]",
    name_data: int,
    content_offsets: "NDArray[int64]",
    content_data: int,
    content_is_valid: "NDArray[uint8]",
) -> int:
    position = _write_varint(position, last - first)
    for header in range(first, last):
        at = name_offsets[header]
        position = _write_field(position, name_data + at, name_offsets[header + 1] - at)
        if _is_null(content_offsets, content_is_valid, header):
            position = _write_varint(position, -1)
        else:
            at = content_offsets[header]
            position = _write_field(position, content_data + at, content_offsets[header + 1] - at)
    return position


@inlined
def _describe(
    descriptions: "NDArray[int64]", batch: int, partition: int, start: int, end: int, count: int, base: int, newest: int
) -> None:
    descriptions[batch, 0], descriptions[batch, 1], descriptions[batch, 2] = partition, start, end
    descriptions[batch, 3], descriptions[batch, 4], descriptions[batch, 5] = count, base, newest


@kernel(
    "int64(int64[::1], int32[::1], int64[::1], int64[::1], int64, uint8[::1], int64[::1], int64, uint8[::1],"
    " int64[::1], int64[::1], int64, int64[::1], int64, uint8[::1], int64, int64, int64, int64[:, ::1])"
)
def encode_batches(
    order: "NDArray[int64]",
    partitions: "NDArray[int32]",
    timestamps: "NDArray[int64]",
    key_offsets: "NDArray[int64]",
    key_data: int,
    key_is_valid: "NDArray[uint8]",
    value_offsets: "NDArray[int64]",
    value_data: int,
    value_is_valid: "NDArray[uint8]",
    header_lists: "NDArray[int64]",
    name_offsets: "NDArray[int64]",
    name_data: int,
    content_offsets: "NDArray[int64]",
    content_data: int,
    content_is_valid: "NDArray[uint8]",
    limit_bytes: int,
    output: int,
    output_bytes: int,
    descriptions: "NDArray[int64]",
) -> int:
    """Writes the rows in the given order; an empty ``order`` keeps the order of the rows.

    A new batch begins where the partition changes or ``limit_bytes`` is exceeded. A record that is larger than the
    limit gets a batch of its own. Returns the number of batches, which are described in ``descriptions``; -1 if there
    is not enough room. A single timestamp counts for all rows. ``header_lists`` has offsets into the columns of header
    names and contents; it is empty if no row has headers.
    """
    batch, count, partition = -1, 0, -1
    start = position = output
    base_timestamp = max_timestamp = 0
    is_timed = timestamps.shape[0] > 1
    timestamp = timestamps[0]
    for place in range(partitions.shape[0]):
        row = order[place] if order.shape[0] else place
        key_bytes = value_bytes = -1
        if not _is_null(key_offsets, key_is_valid, row):
            key_bytes = key_offsets[row + 1] - key_offsets[row]
        if not _is_null(value_offsets, value_is_valid, row):
            value_bytes = value_offsets[row + 1] - value_offsets[row]
        first_header = last_header = 0
        if header_lists.shape[0]:
            first_header, last_header = header_lists[row], header_lists[row + 1]
        fields_bytes = 1 + _field_bytes(key_bytes) + _field_bytes(value_bytes)
        fields_bytes += _headers_bytes(first_header, last_header, name_offsets, content_offsets, content_is_valid)
        if is_timed:
            timestamp = timestamps[row]
        record_bytes = fields_bytes + _varint_bytes(timestamp - base_timestamp) + _varint_bytes(count)
        whole_bytes = record_bytes + _varint_bytes(record_bytes)
        if count == 0 or partitions[row] != partition or position + whole_bytes - start > limit_bytes:
            if count:
                _describe(descriptions, batch, partition, start - output, position - output, count,
                          base_timestamp, max_timestamp)  # fmt: skip
            batch, count, partition = batch + 1, 0, partitions[row]
            base_timestamp = max_timestamp = timestamp
            start, position = position, position + _HEADER_BYTES
            record_bytes = fields_bytes + 2
            whole_bytes = record_bytes + _varint_bytes(record_bytes)
            if batch >= descriptions.shape[0]:
                return -1
        if position + whole_bytes > output + output_bytes:
            return -1
        position = _write_varint(position, record_bytes)
        store_byte(position, 0)
        position = _write_varint(position + 1, timestamp - base_timestamp)
        position = _write_varint(position, count)
        position = _write_field(position, key_data + (key_offsets[row] if key_bytes > 0 else 0), key_bytes)
        position = _write_field(position, value_data + (value_offsets[row] if value_bytes > 0 else 0), value_bytes)
        position = _write_headers(
            position, first_header, last_header, name_offsets, name_data,
            content_offsets, content_data, content_is_valid,
        )  # fmt: skip
        count += 1
        max_timestamp = max(max_timestamp, timestamp)
    if count:
        _describe(descriptions, batch, partition, start - output, position - output, count,
                  base_timestamp, max_timestamp)  # fmt: skip
    return batch + 1
