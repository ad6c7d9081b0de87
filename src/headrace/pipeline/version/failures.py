"""Classifies the failures of a version: the runner decides with the class whether to try the version again.

    transient           the log, the database or an executor was unavailable: tried again until it works
    permanent           the data, the definition or user code is wrong: the version would fail again; a user has to act
    probably permanent  it looks permanent, but that is not certain: tried once more
    out of memory       something did not get the memory that it needs: tried once more, then quarantined
                        (``runner.quarantine``)
    unknown             nothing is known about the failure: tried again a few times

A failure inside of Spark often arrives as text only: a Python traceback within a Java exception. So each exception
class is also searched by its name in the text. If several are found, the order of ``FailureKind`` decides.

If no known class is found, the SQLSTATE decides. Spark and PostgreSQL take it from the same standard. Spark writes it
at the end of a message, ``SQLSTATE: 22012``. Last comes the exception that ended a task's Python code: a user's
function that raised ValueError for a record raises it again for the same record.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from enum import Enum, auto

from headrace.client.errors import (
    AuthenticationFailed,
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
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable, DuplicateKey, UnsuitableSchema
from headrace.pipeline.spark.options import BadOption
from headrace.protocol.kio import ErrorCode


class FailureKind(Enum):
    """In order of precedence, for an error that shows several of them."""

    OUT_OF_MEMORY = auto()
    PERMANENT = auto()
    TRANSIENT = auto()
    PROBABLY_PERMANENT = auto()
    UNKNOWN = auto()


T, P = FailureKind.TRANSIENT, FailureKind.PERMANENT

#: The first match counts, so a class comes before its base classes.
BY_CLASS: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (DataLost, P),
    (UnknownTopic, P),  # retriable in Kafka; but a deleted topic took the data of the view with it
    (InvalidTopic, P),
    (NotAuthorized, P),
    (AuthenticationFailed, P),
    (UnsupportedByBroker, P),
    (BadOption, P),
    (UnsuitableSchema, P),
    (DuplicateKey, P),
    (BrokerUnreachable, T),
    (KafkaTimeout, T),
    (BadResponse, T),
    (DatabaseUnreachable, T),
    (DatabaseBusy, T),
    (ConnectionError, T),
    (TimeoutError, T),
    (MemoryError, FailureKind.OUT_OF_MEMORY),
)

#: The same by class name, for classes that this module does not import: those of Spark and of modules that import it.
BY_NAME: dict[str, FailureKind] = {
    **{error_class.__name__: kind for error_class, kind in BY_CLASS},
    **{error_class.__name__: T for error_class in ConnectionError.__subclasses__()},
    "TlsHandshakeFailed": P,
    "SaslAuthenticationFailed": P,
    "UnsupportedMechanism": P,
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
    "RegistryUnavailable": T,
    "ConnectException": T,  # Java's exception when a machine of the cluster is gone
    "OutOfMemoryError": FailureKind.OUT_OF_MEMORY,
    "SparkOutOfMemoryError": FailureKind.OUT_OF_MEMORY,
    "ArrowMemoryError": FailureKind.OUT_OF_MEMORY,
}

#: Texts of Spark and the databases when a part of them is unavailable for a while.
BY_WORDS: tuple[tuple[str, FailureKind], ...] = (
    (r"ExecutorLostFailure|executor lost|worker lost|Executor heartbeat timed out", T),
    (r"Python worker (exited unexpectedly|failed to connect back)|FetchFailed|Connection reset by peer", T),
    (r"deadlock detected|could not serialize access|terminating connection|database is locked", T),
    (r"disk is full|disk I/O error|No space left on device", T),
    # Texts of Spark, YARN and Kubernetes for an executor that used too much memory; 52 is Spark's exit code for that.
    (
        r"exited with code 52\b|exit code:? 52\b|exceeding (physical |virtual )?memory limits|OOMKilled",
        FailureKind.OUT_OF_MEMORY,
    ),
)

#: By the prefix of a SQLSTATE; the longest match counts. Others, such as Spark's internal errors, are unknown.
BY_SQLSTATE: dict[str, FailureKind] = {
    "08": T,  # connections
    "0A": P,  # not supported
    "21": P,  # a subquery with more rows than one
    "22": P,  # data: division by zero, overflow, a text that is no number
    "40": T,  # rolled back: deadlocks, serialization
    "42": P,  # syntax and names
    "53": T,  # disk full, too many connections
    "53200": FailureKind.OUT_OF_MEMORY,
    "54": P,  # too complex
    "55": T,  # in use
    "57": T,  # stopped by an operator
    "58": T,  # input and output
    "P0": P,  # raised by the query
}

#: Exceptions that a function raises again for the same record. Not OSError: a file or server may be unavailable.
_OF_CODE = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, SyntaxError, TypeError,
    ValueError,
)  # fmt: skip
_NAMES = re.compile(rf"(?<![\w'\"])(?:[\w.]+\.)?({'|'.join(BY_NAME)})(?=:|\(|\n|$)")
_SQLSTATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
#: A Python traceback and its last line: a class, perhaps with its module and its message.
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<class>[\w.<>]+)(?:: (?P<says>.*))?"
)
#: The line of a Java exception. The last one in a message is the cause of all others.
_JAVA_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w.$]+): (\S.*)$", re.MULTILINE)
_BROKER_ERROR = re.compile(r"BrokerError: [^\n]*\((\w+)\)")


def classify_failure(error: BaseException) -> FailureKind:
    return min((_of_one(each) for each in _chain(error)), key=lambda kind: kind.value)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, its cause, the cause of that, and so on."""
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__


def _of_one(error: BaseException) -> FailureKind:
    for error_class, kind in BY_CLASS:
        if isinstance(error, error_class):
            return kind
    if isinstance(error, BrokerError):
        return T if error.is_retriable else P
    if type(error).__name__ in BY_NAME:
        return BY_NAME[type(error).__name__]
    found = _of_state(_database_state(error))
    if found is FailureKind.UNKNOWN:
        found = _of_text(str(error))
    # Raised in this process: by the query's functions, by their input, or by a mistake of ours.
    return FailureKind.PROBABLY_PERMANENT if found is FailureKind.UNKNOWN and isinstance(error, _OF_CODE) else found


def _database_state(error: BaseException) -> str:
    """The SQLSTATE of a driver's error, which may be wrapped by SQLAlchemy."""
    return str(getattr(getattr(error, "orig", error), "sqlstate", None) or "")


def _of_state(state: str) -> FailureKind:
    return next((BY_SQLSTATE[state[:n]] for n in (5, 2) if state[:n] in BY_SQLSTATE), FailureKind.UNKNOWN)


def _of_text(text: str) -> FailureKind:
    named = {BY_NAME[name] for name in _NAMES.findall(text)}
    named |= {T if ErrorCode[code].retriable else P for code in _BROKER_ERROR.findall(text) if code in _CODES}
    named |= {kind for words, kind in BY_WORDS if re.search(words, text)}
    if not named:
        named = {_of_state(state) for state in _SQLSTATE.findall(text)} | {_of_task(text)}
    return min(named, key=lambda kind: kind.value)


def _of_task(text: str) -> FailureKind:
    """Classifies by the exception at the end of the last traceback."""
    raised = list(_TRACEBACK.finditer(text))
    if not raised:
        return FailureKind.UNKNOWN
    module, _, name = raised[-1]["class"].rpartition(".")
    error_class = getattr(builtins, name, None)
    if isinstance(error_class, type) and not module:
        return P if issubclass(error_class, (*_OF_CODE, RuntimeError)) else FailureKind.UNKNOWN
    if module.startswith(("pyarrow", "pyspark.errors")):
        return P
    return FailureKind.UNKNOWN if module.startswith("headrace") else FailureKind.PROBABLY_PERMANENT


_CODES = frozenset(ErrorCode.__members__)


def summary_of(error: BaseException) -> str:
    """The error in a line or two, for a person. Of a traceback within Spark's message, only its last line."""
    text = str(error).strip() or type(error).__name__
    raised = list(_TRACEBACK.finditer(text))
    if raised:
        name, says = raised[-1]["class"].rpartition(".")[2], raised[-1]["says"]
        return f"{name}: {says.strip()}" if says and says.strip() else name
    causes = _JAVA_CAUSE.findall(text)
    lines = [causes[-1]] if causes else [line.strip() for line in text.splitlines() if line.strip()]
    first = re.sub(r"^\[[A-Z0-9_.]+\] ", "", lines[0])
    return first if len(first) <= 500 else f"{first[:500]} ..."
