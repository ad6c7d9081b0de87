"""Which failures of a version pass by themselves: the table by which the runner tries again, or does not.

    transient    the log, the database or an executor was away: tried again for as long as it takes
    permanent    the data, the definition or user code is to blame: it would fail again; a user has to act
    unknown      neither is sure: tried again, but not forever

What failed inside Spark often comes back as text only: a Python traceback within a Java exception. So each class is
also looked for by its name. A permanent one among several decides: what came before it was only on the way.
"""

from __future__ import annotations

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
from headrace.pipeline.log_offsets import DataLost
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable, UnsuitableSchema
from headrace.pipeline.source_options import BadOption
from headrace.protocol.kio import ErrorCode


class Verdict(Enum):
    TRANSIENT = auto()
    PERMANENT = auto()
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
    (AssertionError, Verdict.UNKNOWN),
)

#: The same for classes that this module does not import: of Spark, and of modules that need it.
BY_NAME: dict[str, Verdict] = {
    **{kind.__name__: verdict for kind, verdict in BY_CLASS if verdict is not Verdict.UNKNOWN},
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
}

#: What Spark and the databases say when a part of them is away for a while.
BY_WORDS: tuple[tuple[str, Verdict], ...] = (
    (r"ExecutorLostFailure|executor lost|worker lost|Executor heartbeat timed out", T),
    (r"Python worker (exited unexpectedly|failed to connect back)|FetchFailed|Connection reset by peer", T),
    (r"deadlock detected|could not serialize access|terminating connection|database is locked", T),
    (r"disk is full|disk I/O error|No space left on device", T),
)
_NAMES = re.compile(rf"(?<![\w'\"])(?:[\w.]+\.)?({'|'.join(BY_NAME)})(?=:|\()")
#: The last line of a traceback.
_BLAMED = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w+): (.+)$", re.MULTILINE)
_BROKER_ERROR = re.compile(r"BrokerError: [^\n]*\((\w+)\)")


def verdict_on(error: BaseException) -> Verdict:
    verdicts = {_of_one(each) for each in _chain(error)} - {Verdict.UNKNOWN}
    if P in verdicts:
        return P
    return T if T in verdicts else Verdict.UNKNOWN


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
    return _of_text(str(error))


def _of_text(text: str) -> Verdict:
    named = {BY_NAME[name] for name in _NAMES.findall(text)}
    named |= {T if ErrorCode[code].retriable else P for code in _BROKER_ERROR.findall(text) if code in _CODES}
    if P in named:
        return P
    if T in named or any(verdict is T and re.search(words, text) for words, verdict in BY_WORDS):
        return T
    return Verdict.UNKNOWN


_CODES = frozenset(ErrorCode.__members__)


def summary_of(error: BaseException) -> str:
    """What went wrong in a line or two, for a person: the last word of a Python traceback within Spark's message."""
    text = str(error).strip() or type(error).__name__
    blamed = _BLAMED.findall(text)
    if "Traceback (most recent call last)" in text and blamed:
        return f"{blamed[-1][0]}: {blamed[-1][1].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = re.sub(r"^\[[A-Z0-9_.]+\] ", "", lines[0])
    return first if len(first) <= 500 else f"{first[:500]} ..."
