"""The states of a transactional producer, and the table of allowed transitions. No I/O.

::

    UNINITIALIZED --init--> READY --begin--> IN_TRANSACTION --commit, abort--> ENDING --> READY
                                                   | a record failed, or the coordinator reported an error
                                                   v
                                               ABORTABLE --abort--> ENDING --> READY
    ENDING --no answer in time--> UNKNOWN_RESULT --the same call again--> ENDING
    any --fenced, or a failure that an abort cannot repair--> FATAL
"""

from enum import Enum, auto


class TransactionState(Enum):
    """The state of a transactional producer. The value completes the sentence "the producer ..." in error messages."""

    UNINITIALIZED = "has not called init_transactions()"
    READY = "has begun no transaction"
    IN_TRANSACTION = "is in a transaction"
    ABORTABLE = "is in a transaction that failed and can only be aborted"
    ENDING = "is ending a transaction"
    UNKNOWN_RESULT = "does not know whether its transaction has ended; make the same call again"
    FATAL = "has failed for good and can only be closed"


class TransactionEvent(Enum):
    """A call of the user, or the result of one."""

    INIT = auto()
    BEGIN = auto()
    SEND_OFFSETS = auto()
    COMMIT = auto()
    ABORT = auto()
    ENDED = auto()
    NO_ANSWER = auto()
    FAILED = auto()
    FENCED = auto()


_S, _E = TransactionState, TransactionEvent
#: The state that follows from each state by each event. A pair that is not here is not allowed.
NEXT: dict[tuple[TransactionState, TransactionEvent], TransactionState] = {
    (_S.UNINITIALIZED, _E.INIT): _S.READY,
    (_S.READY, _E.BEGIN): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _E.SEND_OFFSETS): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _E.COMMIT): _S.ENDING,
    (_S.IN_TRANSACTION, _E.ABORT): _S.ENDING,
    (_S.ABORTABLE, _E.ABORT): _S.ENDING,
    (_S.ENDING, _E.ENDED): _S.READY,
    (_S.ENDING, _E.NO_ANSWER): _S.UNKNOWN_RESULT,
    (_S.UNKNOWN_RESULT, _E.COMMIT): _S.ENDING,
    (_S.UNKNOWN_RESULT, _E.ABORT): _S.ENDING,
    (_S.UNKNOWN_RESULT, _E.FAILED): _S.UNKNOWN_RESULT,
    (_S.IN_TRANSACTION, _E.FAILED): _S.ABORTABLE,
    (_S.ABORTABLE, _E.FAILED): _S.ABORTABLE,
    (_S.ENDING, _E.FAILED): _S.ABORTABLE,
    (_S.READY, _E.FAILED): _S.READY,
    **{(state, _E.FENCED): _S.FATAL for state in TransactionState},
    (_S.FATAL, _E.FAILED): _S.FATAL,
}
