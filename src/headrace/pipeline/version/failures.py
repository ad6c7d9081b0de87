"""Decides which failures of a version may pass by themselves: the table by which the runner tries again, or does not.

    transient    the log, the database or an executor was away: tried again for as long as it takes
    permanent    the data, the definition or user code is to blame: the version would fail again; a user has to act
    unlikely     it looks like that, but is not sure: tried once more
    exhausted    something did not get the memory that it needs: tried once more, then set aside (``suspects``)
    unknown      nothing is known of it: tried again, but not forever

What failed inside Spark often comes back as text only: a Python traceback within a Java exception. So each class is
also looked for by its name. A permanent one among several decides: what came before it was only on the way.

Where no class is known, the SQLSTATE decides, which Spark and PostgreSQL take from the same standard. Spark says it at
the end of a message, ``SQLSTATE: 22012``. Last comes the exception that ended a task's Python: a function of the user
that raised ValueError for a record does so again.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from enum import Enum, auto

from headrace.client.errors import (
    BadResponse,
    BrokerError,
    BrokerUnreachable,
    InvalidTopic,
    KafkaTimeout,
    NotAuthorized,
    UnknownTopic,
    UnsupportedByBroker,
)
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable, UnsuitableSchema
from headrace.pipeline.spark.options import BadOption
from headrace.protocol.kio import ErrorCode


class Verdict(Enum):
    """In the order in which they count where an error says several."""

    EXHAUSTED = auto()
    PERMANENT = auto()
    TRANSIENT = auto()
    UNLIKELY = auto()
    UNKNOWN = auto()


T, P = Verdict.TRANSIENT, Verdict.PERMANENT

#: The first that fits counts, so a class stands before those that it comes from.
BY_CLASS: tuple[tuple[type[BaseException], Verdict], ...] = (
    (DataLost, P),
    (UnknownTopic, P),  # retriable to Kafka; but a topic that a view reads took its data with it
    (InvalidTopic, P),
    (NotAuthorized, P),
    (UnsupportedByBroker, P),
    (BadOption, P),
    (UnsuitableSchema, P),
    (BrokerUnreachable, T),
    (KafkaTimeout, T),
    (BadResponse, T),
    (DatabaseUnreachable, T),
    (DatabaseBusy, T),
    (ConnectionError, T),
    (TimeoutError, T),
    (MemoryError, Verdict.EXHAUSTED),
)

#: The same for classes that this module does not import: of Spark, and of modules that need it.
BY_NAME: dict[str, Verdict] = {
    **{kind.__name__: verdict for kind, verdict in BY_CLASS},
    **{kind.__name__: T for kind in ConnectionError.__subclasses__()},
    "ViewError": P,
    "UnsuitableDecode": P,
    "UnsuitableAvro": P,
    "NotCombinable": P,
    "WrongCheckpoint": P,
    "AnalysisException": P,
    "ParseException": P,
    "ArithmeticException": P,
    "SparkArithmeticException": P,
    "SparkRuntimeException": P,
    "ConnectException": T,  # Java's, when a machine of the cluster is gone
    "OutOfMemoryError": Verdict.EXHAUSTED,
    "SparkOutOfMemoryError": Verdict.EXHAUSTED,
    "ArrowMemoryError": Verdict.EXHAUSTED,
}

#: What Spark and the databases say when a part of them is away for a while.
BY_WORDS: tuple[tuple[str, Verdict], ...] = (
    (r"ExecutorLostFailure|executor lost|worker lost|Executor heartbeat timed out", T),
    (r"Python worker (exited unexpectedly|failed to connect back)|FetchFailed|Connection reset by peer", T),
    (r"deadlock detected|could not serialize access|terminating connection|database is locked", T),
    (r"disk is full|disk I/O error|No space left on device", T),
    # How Spark, YARN and Kubernetes say that an executor took too much; 52 is Spark's own exit code for that.
    (
        r"exited with code 52\b|exit code:? 52\b|exceeding (physical |virtual )?memory limits|OOMKilled",
        Verdict.EXHAUSTED,
    ),
)

#: By the beginning of a SQLSTATE; the longest that fits counts. Others, such as Spark's internal errors, are unknown.
BY_SQLSTATE: dict[str, Verdict] = {
    "08": T,  # connections
    "0A": P,  # not supported
    "21": P,  # a subquery with more rows than one
    "22": P,  # data: division by zero, overflow, a text that is no number
    "40": T,  # rolled back: deadlocks, serialization
    "42": P,  # syntax and names
    "53": T,  # disk full, too many connections
    "53200": Verdict.EXHAUSTED,
    "54": P,  # too complex
    "55": T,  # in use
    "57": T,  # an operator has stopped it
    "58": T,  # input and output
    "P0": P,  # raised by the query
}

#: What a function raises for the same record again. Not OSError: what it reads may be away.
_OF_CODE = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, SyntaxError, TypeError,
    ValueError,
)  # fmt: skip
_NAMES = re.compile(rf"(?<![\w'\"])(?:[\w.]+\.)?({'|'.join(BY_NAME)})(?=:|\(|\n|$)")
_SQLSTATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
#: A Python traceback, and the line that it ends with: a class, perhaps with its module and what it says.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<kind>[\w.<>]+)(?:: (?P<says>.*))?")
#: The line of a Java exception; the last one of a message is the cause of all before it.
_JAVA_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w.$]+): (\S.*)$", re.MULTILINE)
_BROKER_ERROR = re.compile(r"BrokerError: [^\n]*\((\w+)\)")


def verdict_on(error: BaseException) -> Verdict:
    return min((_of_one(each) for each in _chain(error)), key=lambda verdict: verdict.value)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Itself and what it was raised from."""
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__


def _of_one(error: BaseException) -> Verdict:
    for kind, verdict in BY_CLASS:
        if isinstance(error, kind):
            return verdict
    if isinstance(error, BrokerError):
        return T if error.is_retriable else P
    if type(error).__name__ in BY_NAME:
        return BY_NAME[type(error).__name__]
    found = _of_state(_database_state(error))
    if found is Verdict.UNKNOWN:
        found = _of_text(str(error))
    # Raised in this process: by the query's functions, by what they were given, or by a mistake of ours.
    return Verdict.UNLIKELY if found is Verdict.UNKNOWN and isinstance(error, _OF_CODE) else found


def _database_state(error: BaseException) -> str:
    """The SQLSTATE of a driver's error, perhaps within one of SQLAlchemy."""
    return str(getattr(getattr(error, "orig", error), "sqlstate", None) or "")


def _of_state(state: str) -> Verdict:
    return next((BY_SQLSTATE[state[:n]] for n in (5, 2) if state[:n] in BY_SQLSTATE), Verdict.UNKNOWN)


def _of_text(text: str) -> Verdict:
    named = {BY_NAME[name] for name in _NAMES.findall(text)}
    named |= {T if ErrorCode[code].retriable else P for code in _BROKER_ERROR.findall(text) if code in _CODES}
    named |= {verdict for words, verdict in BY_WORDS if re.search(words, text)}
    if not named:
        named = {_of_state(state) for state in _SQLSTATE.findall(text)} | {_of_task(text)}
    return min(named, key=lambda verdict: verdict.value)


def _of_task(text: str) -> Verdict:
    """By the exception that the last traceback ends with."""
    raised = list(_TRACEBACK.finditer(text))
    if not raised:
        return Verdict.UNKNOWN
    module, _, name = raised[-1]["kind"].rpartition(".")
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and not module:
        return P if issubclass(kind, (*_OF_CODE, RuntimeError)) else Verdict.UNKNOWN
    if module.startswith(("pyarrow", "pyspark.errors")):
        return P
    return Verdict.UNKNOWN if module.startswith("headrace") else Verdict.UNLIKELY


_CODES = frozenset(ErrorCode.__members__)


def summary_of(error: BaseException) -> str:
    """What went wrong in a line or two, for a person: the last word of a Python traceback within Spark's message."""
    text = str(error).strip() or type(error).__name__
    raised = list(_TRACEBACK.finditer(text))
    if raised:
        name, says = raised[-1]["kind"].rpartition(".")[2], raised[-1]["says"]
        return f"{name}: {says.strip()}" if says and says.strip() else name
    causes = _JAVA_CAUSE.findall(text)
    lines = [causes[-1]] if causes else [line.strip() for line in text.splitlines() if line.strip()]
    first = re.sub(r"^\[[A-Z0-9_.]+\] ", "", lines[0])
    return first if len(first) <= 500 else f"{first[:500]} ..."
