"""The states of a transactional id, and the transitions between them.

::

    Empty --> Ongoing --> PrepareCommit --> CompleteCommit --> Ongoing ...
                 |
                 +------> PrepareAbort ---> CompleteAbort ---> Ongoing ...
                 |             ^
                 +-> PrepareEpochFence    a newer producer, or the timeout, aborts the transaction of this producer

A Prepare state is the decision: once its record is committed, the transaction will end that way, whatever happens. A
Complete state means that all partitions of the transaction have the marker. PrepareEpochFence exists only in memory, as
an intermediate step.

The numbers are those in the records of ``__transaction_state``. The labels are the words that Kafka's tools show.
"""

from enum import Enum


class TransactionState(Enum):
    """The state of a transactional id."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    __hash__ = object.__hash__

    def __init__(self, number: int, label: str) -> None:
        self.number = number
        #: Kafka's word for the state.
        self.label = label


#: From each state, the states that may follow. Any other transition is a mistake in our code, not a client's.
#: A client of KIP-890 may abort without a transaction, if it does not know whether it had begun one.
NEXT: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.ONGOING: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
            TransactionState.PREPARE_EPOCH_FENCE,
        }
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.PREPARE_ABORT}),
}

#: The states in which the end is decided and not yet done, and the state that follows each.
COMPLETE_STATES = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
#: The states without a transaction under way.
IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

BY_NUMBER = {state.number: state for state in TransactionState}
BY_LABEL = {state.label: state for state in TransactionState}
