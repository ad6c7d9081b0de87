"""Reads the response to DescribeTransactions. kio cannot read it: a transactional id without a transaction has the
start time -1, and kio rejects times before 1970.

v0, the only version::

    throttle int32, states [error int16, id, state, timeout int32, start int64, producer_id int64, epoch int16,
                            topics [name, partitions [int32]]]

Strings and arrays are compact (a varint of their length plus one precedes them), and each entity ends in tagged fields.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple, TypeVar

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.protocol.topic_partition import TopicPartition
from headrace.protocol.wire.client_codec import BadResponse, body_at
from headrace.protocol.wire.reader import WireReader

VERSION = 0
_T = TypeVar("_T")
_STATE = Struct(">iqqh")  # timeout, start, producer id, epoch
_INT16 = Struct(">h")
_INT32 = Struct(">i")


class TransactionState(NamedTuple):
    error_code: ErrorCode
    transactional_id: str
    state: str
    timeout_ms: int
    #: -1 if no transaction is open.
    start_time_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class _Reader(WireReader):
    __slots__ = ()

    def string(self) -> str:
        return str(self.slice(self.uvarint() - 1), "utf-8")

    def array(self, read: Callable[[], _T]) -> list[_T]:
        return [read() for _ in range(self.uvarint() - 1)]


def read_transaction_states(frame: memoryview) -> list[TransactionState]:
    """
    :param frame: the response, from the correlation id on.
    :raises BadResponse: if the bytes are not a response to DescribeTransactions.
    """
    try:
        reader = _Reader(frame, body_at(Api.DESCRIBE_TRANSACTIONS, VERSION, frame))
        reader.unpack(_INT32)
        return reader.array(lambda: _state(reader))
    except (StructError, IndexError, ValueError) as error:
        raise BadResponse(f"the response to DescribeTransactions cannot be read: {error}") from error


def _state(reader: _Reader) -> TransactionState:
    (code,) = reader.unpack(_INT16)
    transactional_id, state = reader.string(), reader.string()
    timeout_ms, start_time_ms, producer_id, epoch = reader.unpack(_STATE)
    topics = reader.array(lambda: _topic(reader))
    reader.skip_tags()
    partitions = tuple(partition for topic in topics for partition in topic)
    return TransactionState(
        ErrorCode(code), transactional_id, state, timeout_ms, start_time_ms, producer_id, epoch, partitions
    )


def _topic(reader: _Reader) -> list[TopicPartition]:
    name = reader.string()
    partitions = reader.array(lambda: TopicPartition(name, reader.unpack(_INT32)[0]))
    reader.skip_tags()
    return partitions
