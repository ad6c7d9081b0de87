"""The response to DescribeTransactions: it is read as it was written, and other bytes are rejected."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.protocol.topic_partition import TopicPartition
from headrace.protocol.wire.client_codec import BadResponse
from headrace.protocol.wire.describe_transactions import TransactionState, read_transaction_states
from headrace.protocol.wire.server_codec import encode_response, server_codec


def frame(*states: dict[str, object]) -> memoryview:
    data, _ = encode_response(server_codec(Api.DESCRIBE_TRANSACTIONS, 0), 5, {"transaction_states": states})
    return memoryview(bytes(data))[4:]


OPEN = {
    "error_code": 0,
    "transactional_id": "id" * 100,
    "transaction_state": "Ongoing",
    "transaction_timeout": 60_000,
    "transaction_start_time": 1_700_000_000_000,
    "producer_id": 2**40,
    "producer_epoch": 3,
    "topics": [{"topic": "a", "partitions": [0, 200]}, {"topic": "b", "partitions": [1]}],
}
ENDED = OPEN | {
    "transactional_id": "other",
    "transaction_state": "Empty",
    "transaction_start_time": -1,
    "topics": [],
}


def test_states_are_read_as_they_were_written():
    partitions = (TopicPartition("a", 0), TopicPartition("a", 200), TopicPartition("b", 1))
    assert read_transaction_states(frame(OPEN, ENDED)) == [
        TransactionState(ErrorCode.none, "id" * 100, "Ongoing", 60_000, 1_700_000_000_000, 2**40, 3, partitions),
        TransactionState(ErrorCode.none, "other", "Empty", 60_000, -1, 2**40, 3, ()),
    ]


def test_a_response_that_is_cut_is_rejected():
    data = frame(OPEN, ENDED)
    for size in range(4, len(data) - 1):
        with pytest.raises(BadResponse, match="DescribeTransactions"):
            read_transaction_states(data[:size])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_rejected(data):
    with suppress(BadResponse):
        read_transaction_states(memoryview(data))
