"""The table of the states of a transactional id, and the steps between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_records import InternalTopic, RecordType, decode, encode_key, encode_value
from headrace.transactions.metadata import TransactionMetadata, metadata_from_record
from headrace.transactions.states import BY_LABEL, BY_NUMBER, NEXT, TransactionState

#: Each step with the state that it leads to.
STEPS = {
    "with_next_epoch": (TransactionState.EMPTY, lambda it: it.with_next_epoch(1, 2, same_producer=False)),
    "with_producer_id": (TransactionState.EMPTY, lambda it: it.with_producer_id(9, 1, 2, same_producer=True)),
    "with_timeout": (TransactionState.EMPTY, lambda it: it.with_timeout(1, 2)),
    "with_partitions": (TransactionState.ONGOING, lambda it: it.with_partitions([("t", 0)], 2, client_version=0)),
    "fenced": (TransactionState.PREPARE_EPOCH_FENCE, lambda it: it.fenced(2)),
    "committed": (TransactionState.PREPARE_COMMIT, lambda it: it.prepared(2, is_commit=True, client_version=0)),
    "aborted": (TransactionState.PREPARE_ABORT, lambda it: it.prepared(2, is_commit=False, client_version=2)),
}

metadatas = st.builds(
    TransactionMetadata,
    transactional_id=st.text(min_size=1, max_size=5),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([state for state in TransactionState if state is not TransactionState.EMPTY]),
    updated_ms=st.integers(0, 2**62),
    started_ms=st.integers(-1, 2**62),
    partitions=st.frozensets(st.tuples(st.sampled_from(["t", "u", "ö"]), st.integers(0, 5))),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    client_version=st.integers(0, 2),
)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("state", TransactionState)
def test_a_step_is_taken_only_where_the_table_has_it(state, step):
    before = TransactionMetadata("x", 1, 5, 1000, state, 1, started_ms=1, partitions=frozenset({("t", 1)}))
    target, take = STEPS[step]
    if target in NEXT[state]:
        assert take(before).state is target
    else:
        with pytest.raises(AssertionError, match="cannot become"):
            take(before)


def test_every_state_is_reached_and_left():
    assert NEXT.keys() == set(TransactionState)
    assert frozenset().union(*NEXT.values()) == set(TransactionState)
    assert [state for state in TransactionState if not NEXT[state]] == [TransactionState.DEAD]


def test_names_and_numbers_are_kafkas():
    assert [BY_NUMBER[number].label for number in range(8)] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip
    assert len(BY_LABEL) == 8


@given(metadatas)
def test_a_record_says_all_of_it(metadata):
    key, value = metadata.record()
    assert metadata_from_record(decode(InternalTopic.TRANSACTION_STATE, key, value)) == metadata


def test_an_empty_id_has_no_partitions_in_its_record():
    key, value = TransactionMetadata("x", 1, 0, 1000, TransactionState.EMPTY, 5).record()
    assert decode(InternalTopic.TRANSACTION_STATE, key, value).value.transaction_partitions is None


def test_a_state_that_there_is_not():
    key = encode_key(RecordType.TRANSACTION, transactional_id="x")
    value = encode_value(
        RecordType.TRANSACTION,
        producer_id=1,
        producer_epoch=0,
        transaction_timeout_ms=1,
        transaction_status=99,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=1,
        transaction_start_timestamp_ms=1,
    )
    with pytest.raises(CorruptMessage, match="99"):
        metadata_from_record(decode(InternalTopic.TRANSACTION_STATE, key, value))
