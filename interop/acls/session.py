"""A raw client that logs in by SASL PLAIN, and the requests that the setup of the matrix sends as the super user."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.raw_client import RawClient

from .cells import ADMIN, PASSWORD, Cell, Login

_PATIENCE_S = 30.0
_CHUNK = 200
_LOADING = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.concurrent_transactions,
    }
)


class LoginFailed(Exception):
    """The broker did not accept user and password."""


class Session(RawClient):
    """One connection, logged in unless it is anonymous."""

    def __init__(self, address: str, user: str | None = None, password: str = PASSWORD) -> None:
        super().__init__(address, client_id="acl-matrix", timeout_s=30.0)
        if user is not None:
            try:
                self._log_in(user, password)
            except BaseException:
                self.close()
                raise

    def _log_in(self, user: str, password: str) -> None:
        shaken = self.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        if shaken.error_code:
            raise LoginFailed(f"handshake: {ErrorCode(shaken.error_code).name}")
        answer = self.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=f"\0{user}\0{password}".encode())
        if answer.error_code:
            raise LoginFailed(f"{user}: {ErrorCode(answer.error_code).name}: {answer.error_message}")

    def ask_about_token(self, api: Api, version: int, /, **fields: Any) -> Any:
        """Asks, and returns only the code if the answer has an error: the other fields then say nothing."""
        answer = self.ask(api, version, **fields)
        return {"error_code": answer.error_code} if answer.error_code else answer


class Addresses:
    """Where a broker of the matrix listens."""

    def __init__(self, sasl: str, plaintext: str) -> None:
        self.sasl, self.plaintext = sasl, plaintext

    def session(self, cell: Cell) -> Session:
        return Session(self.plaintext) if cell.column.login is Login.NONE else Session(self.sasl, cell.user)

    def admin(self) -> Session:
        return Session(self.sasl, ADMIN)


def wait_for_coordinators(admin: Session) -> None:
    """Asks for a coordinator of groups and of transactions, which creates the internal topics, until there is one."""
    for key_type in (0, 1):
        asked = {"key_type": key_type, "coordinator_keys": [f"matrix{at}" for at in range(10)]}
        until(
            lambda asked=asked: (
                not any(each.error_code for each in admin.ask(Api.FIND_COORDINATOR, 4, **asked).coordinators)
            ),
            "the coordinators are there",
        )


def create_topics(admin: Session, names: list[str]) -> dict[str, Any]:
    """Creates topics, waits until they have leaders, and returns their ids."""
    for at in range(0, len(names), _CHUNK):
        topics = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
            for name in names[at : at + _CHUNK]
        ]
        answer = admin.ask(Api.CREATE_TOPICS, 7, topics=topics, timeout=30_000, validate_only=False)
        for each in answer.topics:
            assert not each.error_code, f"{each.name}: {ErrorCode(each.error_code).name} {each.error_message}"
    ids: dict[str, Any] = {}
    for at in range(0, len(names), _CHUNK):
        until(lambda chunk=names[at : at + _CHUNK]: _have_leaders(admin, chunk, ids), "the topics have leaders")
    return ids


def _have_leaders(admin: Session, names: list[str], ids: dict[str, Any]) -> bool:
    answer = admin.ask(
        Api.METADATA,
        12,
        topics=[{"topic_id": None, "name": name} for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    ids.update({each.name: each.topic_id for each in answer.topics})
    return all(
        not each.error_code and each.partitions and all(part.leader_id >= 0 for part in each.partitions)
        for each in answer.topics
    )


def create_acls(admin: Session, acls: list[dict[str, Any]]) -> None:
    """Creates ACLs, and waits until the broker describes all of them."""
    for at in range(0, len(acls), _CHUNK):
        answer = admin.ask(Api.CREATE_ACLS, 3, creations=acls[at : at + _CHUNK])
        for acl, each in zip(acls[at : at + _CHUNK], answer.results, strict=True):
            assert not each.error_code, f"{acl}: {ErrorCode(each.error_code).name} {each.error_message}"
    wanted = {_key(acl["resource_type"], acl["resource_name"], acl) for acl in acls}
    until(lambda: wanted <= described_acls(admin), "the broker knows all ACLs")


def described_acls(admin: Session) -> set[tuple[Any, ...]]:
    answer = admin.ask(
        Api.DESCRIBE_ACLS,
        3,
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return {
        (each.resource_type, each.resource_name, acl.principal, acl.host, acl.operation, acl.permission_type)
        for each in answer.resources
        for acl in each.acls
    }


def _key(resource_type: int, name: str, acl: dict[str, Any]) -> tuple[Any, ...]:
    return (resource_type, name, acl["principal"], acl["host"], acl["operation"], acl["permission_type"])


def when_loaded(ask: Callable[[], Any], code_of: Callable[[Any], Any]) -> Any:
    """Asks again until the coordinator has loaded; any other error is a failure."""
    answers: list[Any] = []

    def has_loaded() -> bool:
        answers.append(ask())
        return code_of(answers[-1]) not in _LOADING

    until(has_loaded, "the coordinator has loaded")
    assert not code_of(answers[-1]), answers[-1]
    return answers[-1]


def until(condition: Any, what: str, patience_s: float = _PATIENCE_S) -> None:
    ends = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {patience_s} s: {what}")
        time.sleep(0.02)
