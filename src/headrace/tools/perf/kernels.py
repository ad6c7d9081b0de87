"""Counts the records and bytes of fetched batches in a Numba kernel, without an object per record.

The kernel walks the records of many batches in one call and checks them as the clients' own kernels do: each field must
end within its record, and each record where its length says. Bytes are those of keys and values, as in Kafka's tool.
"""

from typing import TYPE_CHECKING

from headrace.client.kernels.compiling import kernel
from headrace.client.kernels.decode import read_field, read_varint

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

__all__ = ["BODY_FIELDS", "count_records"]

#: Columns of the table that the kernel reads.
BODY_FIELDS = ("address", "size_bytes", "record_count", "first_delta")


@kernel("int64(int64[:, ::1], int64[::1])")
def count_records(bodies: "NDArray[int64]", totals: "NDArray[int64]") -> int:
    """Returns the number of valid batches before the first invalid one; ``totals`` gets their records and bytes.

    Records whose offset is less than ``first_delta`` above the base offset of their batch do not count.
    """
    count: int = bodies.shape[0]
    for index in range(count):
        position = bodies[index, 0]
        end = position + bodies[index, 1]
        records = size_bytes = 0
        for _ in range(bodies[index, 2]):
            length, position = read_varint(position, end)
            if position < 0 or length < 0 or length > end - position:
                return index
            record_end = position + length
            _, position = read_varint(position + 1, record_end)
            if position < 0:
                return index
            delta, position = read_varint(position, record_end)
            if position < 0:
                return index
            key_at, key_end, position = read_field(position, record_end)
            if position < 0:
                return index
            value_at, value_end, position = read_field(position, record_end)
            if position < 0 or position >= record_end:
                return index
            if delta >= bodies[index, 3]:
                records += 1
                size_bytes += max(key_end - key_at, 0) + max(value_end - value_at, 0)
            position = record_end
        if position != end:
            return index
        totals[0] += records
        totals[1] += size_bytes
    return count
