"""Reads the answer to DescribeTransactions, which kio cannot: an id without a transaction began at -1, and kio takes no
time before 1970.

v0, the only one::

    throttle int32, states [error int16, id, state, timeout int32, start int64, producer_id int64, epoch int16,
                            topics [name, partitions [int32]]]

Strings and arrays are compact (a varint of their length plus one), and each entity ends in tagged fields.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple, TypeVar

from headrace.client.errors import BadResponse, ErrorCode
from headrace.client.types import TopicPartition

_T = TypeVar("_T")
_STATE = Struct(">iqqh")  # timeout, start, producer id, epoch
_INT16 = Struct(">h")
_INT32 = Struct(">i")


class TransactionState(NamedTuple):
    error_code: ErrorCode
    transactional_id: str
    state: str
    timeout_ms: int
    #: -1 without a transaction.
    start_time_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


def read_transaction_states(body: memoryview) -> list[TransactionState]:
    """
    :param body: the answer behind its header.
    :raises BadResponse: if it is none.
    """
    reader = _Reader(body)
    try:
        reader.fixed(_INT32)
        return reader.array(lambda: _state(reader))
    except (StructError, IndexError, ValueError) as error:
        raise BadResponse(f"an answer to DescribeTransactions that cannot be read: {error}") from error


def _state(reader: _Reader) -> TransactionState:
    (code,) = reader.fixed(_INT16)
    transactional_id, state = reader.string(), reader.string()
    timeout_ms, start_time_ms, producer_id, epoch = reader.fixed(_STATE)
    topics = reader.array(lambda: _topic(reader))
    reader.skip_tags()
    partitions = tuple(partition for topic in topics for partition in topic)
    return TransactionState(
        ErrorCode(code), transactional_id, state, timeout_ms, start_time_ms, producer_id, epoch, partitions
    )


def _topic(reader: _Reader) -> list[TopicPartition]:
    name = reader.string()
    partitions = reader.array(lambda: TopicPartition(name, reader.fixed(_INT32)[0]))
    reader.skip_tags()
    return partitions


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def fixed(self, layout: Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return values

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str:
        return bytes(self._take(self.uvarint() - 1)).decode()

    def array(self, read: Callable[[], _T]) -> list[_T]:
        return [read() for _ in range(self.uvarint() - 1)]

    def skip_tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self._take(self.uvarint())

    def _take(self, size_bytes: int) -> memoryview:
        if not 0 <= size_bytes <= len(self._data) - self._at:
            raise ValueError("something ends behind the answer")
        self._at += size_bytes
        return self._data[self._at - size_bytes : self._at]
