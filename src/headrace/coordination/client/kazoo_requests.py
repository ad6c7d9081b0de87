"""The requests to ZooKeeper as messages of kazoo, and how their answers and errors are decoded. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar, cast

from kazoo import exceptions as theirs  # type: ignore[import-untyped]
from kazoo.protocol import serialization as wire  # type: ignore[import-untyped]
from kazoo.security import ACL, Id  # type: ignore[import-untyped]

from headrace.coordination.acls import Acl
from headrace.coordination.interface import (
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    Check,
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    InvalidAclError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Result,
    SessionExpiredError,
    SetData,
    Stat,
    copy_data,
)

T = TypeVar("T")
_EPHEMERAL, _SEQUENCE = 1, 2

_ERRORS: dict[type[Exception], type[CoordinationError]] = {
    theirs.NoNodeError: NoNodeError,
    theirs.NodeExistsError: NodeExistsError,
    theirs.BadVersionError: BadVersionError,
    theirs.NotEmptyError: NotEmptyError,
    theirs.NoChildrenForEphemeralsError: NoChildrenForEphemeralsError,
    theirs.BadArgumentsError: BadArgumentsError,
    theirs.SessionExpiredError: SessionExpiredError,
    theirs.ConnectionClosedError: SessionExpiredError,
    theirs.ConnectionLoss: ConnectionLostError,
    theirs.NoAuthError: NoAuthError,
    theirs.InvalidACLError: InvalidAclError,
    theirs.AuthFailedError: AuthFailedError,
}
#: What an error means, if its name and the path do not tell.
_MEANINGS: dict[type[CoordinationError], str] = {
    NoAuthError: "ZooKeeper's access control list does not permit this to our login",
    InvalidAclError: "ZooKeeper rejects the access control list; did the server accept our login?",
    AuthFailedError: "ZooKeeper rejects our login (headrace.zookeeper.login)",
}
#: In the answer to a failed multi: another operation failed.
_NOT_THE_CAUSE = (theirs.RolledBackError, theirs.RuntimeInconsistency)


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A message of kazoo, and the function that decodes its answer."""

    message: object
    decode: Callable[[object], T]
    #: The path, or the name of the operation, for errors.
    subject: str


def create(operation: Create) -> Request[str]:
    return Request(_message(operation), lambda path: cast(str, path), operation.path)


def get(path: str, *, watch: bool) -> Request[tuple[bytes, Stat]]:
    return Request(wire.GetData(path, _marker(watch)), _data_and_stat, path)


def set_data(operation: SetData) -> Request[Stat]:
    return Request(_message(operation), _stat, operation.path)


def delete(operation: Delete) -> Request[None]:
    return Request(_message(operation), lambda _: None, operation.path)


def exists(path: str, *, watch: bool) -> Request[Stat | None]:
    return Request(wire.Exists(path, _marker(watch)), lambda stat: None if stat is None else _stat(stat), path)


def children(path: str, *, watch: bool) -> Request[tuple[list[str], Stat]]:
    return Request(wire.GetChildren2(path, _marker(watch)), _names_and_stat, path)


def multi(operations: Sequence[Operation]) -> Request[list[Result]]:
    """If the multi failed, ``decode`` raises the error of the operation that failed."""

    def decode(answer: object) -> list[Result]:
        return _results(operations, cast(list[object], answer))

    return Request(wire.Transaction([_message(operation) for operation in operations]), decode, "multi")


def _message(operation: Operation) -> object:
    match operation:
        case Create(path, data, ephemeral, sequence):
            flags = _EPHEMERAL * ephemeral | _SEQUENCE * sequence
            return wire.Create(path, copy_data(data), _their_acl(operation.acl), flags)
        case Delete(path, version):
            return wire.Delete(path, version)
        case SetData(path, data, version):
            return wire.SetData(path, copy_data(data), version)
        case Check(path, version):
            return wire.CheckVersion(path, version)


@lru_cache(maxsize=64)
def _their_acl(acl: Acl) -> list[object]:
    return [ACL(permissions, Id(scheme, name)) for permissions, scheme, name in acl]


def _stat(answer: object) -> Stat:
    return Stat(*cast(tuple[int, ...], answer))


def _data_and_stat(answer: object) -> tuple[bytes, Stat]:
    data, stat = cast(tuple[bytes | None, object], answer)
    return data or b"", _stat(stat)


def _names_and_stat(answer: object) -> tuple[list[str], Stat]:
    names, stat = cast(tuple[list[str], object], answer)
    return sorted(names), _stat(stat)


def _results(operations: Sequence[Operation], answers: list[object]) -> list[Result]:
    results: list[Result] = []
    for index, (operation, answer) in enumerate(zip(operations, answers, strict=True)):
        if isinstance(answer, _NOT_THE_CAUSE):
            continue
        if isinstance(answer, Exception):
            error = error_of(answer, operation.path)
            error.operation_index = index
            raise error
        match operation:
            case Create():
                results.append(cast(str, answer))
            case SetData():
                results.append(_stat(answer))
            case _:
                results.append(None)
    return results


def error_of(error: Exception, subject: str) -> CoordinationError:
    kind = _ERRORS.get(type(error))
    if kind is None:
        return CoordinationError(f"{subject}: {error!r}")
    return kind(f"{subject}: {_MEANINGS[kind]}") if kind in _MEANINGS else kind(subject)


def _ignore(_: object) -> None:
    pass


def _marker(watch: bool) -> Callable[[object], None] | None:
    """kazoo's object for a watch. The handler does not call it, but passes the event to the transport."""
    return _ignore if watch else None
