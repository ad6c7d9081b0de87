"""The states of a transactional id, and which may follow which.

::

    Empty --> Ongoing --> PrepareCommit --> CompleteCommit --> Ongoing ...
                 |
                 +------> PrepareAbort ---> CompleteAbort ---> Ongoing ...
                 |             ^
                 +-> PrepareEpochFence    another producer, or the timeout, ends what this one began

A Prepare state is the decision: once its record is written, the transaction will end that way, whatever happens. A
Complete state says that all its partitions have the marker. PrepareEpochFence is passed through in memory only.

The numbers are those of ``__transaction_state``, the names those that Kafka's tools show.
"""

from enum import Enum


class State(Enum):
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
        #: Kafka's word for it.
        self.label = label


#: From each state, which states may follow. Anything else is our mistake, not a client's.
#: An abort without a transaction is a client of KIP-890 that does not know whether it had begun one.
NEXT: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset({State.PREPARE_ABORT}),
}

#: What is decided and not yet done, and what it becomes.
COMPLETED = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}
#: No transaction is under way.
IDLE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})

BY_NUMBER = {state.number: state for state in State}
BY_LABEL = {state.label: state for state in State}
