"""Rows of the ACL matrix: ACLs, SCRAM users, delegation tokens and logins."""

from __future__ import annotations

import hashlib
from typing import Any

from headrace.protocol.api import Api

from .cells import COLUMNS, LITERAL, Cell, Column, Kind, Login, Need, Op, Row, cluster
from .session import described_acls, until

ANY = 1


def _filter(cell: Cell, **more: Any) -> dict[str, Any]:
    """The ACLs on the cell's topic z, which nothing else uses."""
    return {
        "resource_type_filter": int(Kind.TOPIC),
        "resource_name_filter": cell.name("z"),
        "pattern_type_filter": LITERAL,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **more,
    }


def _two_acls(cell: Cell, admin: Any) -> None:
    acls = [cell.acl(Need(op, Kind.TOPIC, "z"), principal="User:zoe") for op in (Op.READ, Op.WRITE)]
    admin.ask(Api.CREATE_ACLS, 3, creations=acls)
    until(lambda: sum(each[1] == cell.name("z") for each in described_acls(admin)) == 2, "the ACLs are there")


def _new(cell: Cell, **more: Any) -> dict[str, Any]:
    return {**cell.acl(Need(Op.READ, Kind.TOPIC, "n"), principal="User:zoe"), **more}


def _create(cell: Cell) -> Any:
    return {"creations": [_new(cell), _new(cell, operation=int(Op.WRITE)), _new(cell)]}


#: Rules that a broker refuses. Kafka fails the whole request for some of them.
_BAD_RULES: dict[str, dict[str, Any]] = {
    "no_type": {"principal": "zoe"},
    "cluster_name": {"resource_type": int(Kind.CLUSTER), "resource_name": "another"},
    "no_name": {"resource_name": ""},
    "any_operation": {"operation": ANY},
    "any_permission": {"permission_type": ANY},
    "any_type": {"resource_type": ANY},
    "match": {"resource_pattern_type": 2},
    "unknown_operation": {"operation": 99},
}


def _create_bad(bad: dict[str, Any]) -> Any:
    return lambda cell: {"creations": [_new(cell), _new(cell, **bad)]}


def _delete(cell: Cell) -> Any:
    return {"filters": [_filter(cell, operation=int(Op.READ)), _filter(cell, resource_name_filter=cell.name("none"))]}


def _left(cell: Cell, session: Any) -> Any:
    """Deletes one of two ACLs, then lists what is left, as the same principal."""
    answer = session.ask(Api.DELETE_ACLS, 3, **_delete(cell))
    if any(each.matching_acls for each in answer.filter_results):
        until(lambda: len(session.ask(Api.DESCRIBE_ACLS, 3, **_filter(cell)).resources[0].acls) == 1, "one ACL is left")
    return {"deleted": answer, "left": session.ask(Api.DESCRIBE_ACLS, 3, **_filter(cell))}


ACLS = (
    Row("describe_acls", Api.DESCRIBE_ACLS, 3, _filter, (cluster(Op.DESCRIBE),), prepare=_two_acls),
    Row(
        "describe_acls_match",
        Api.DESCRIBE_ACLS,
        1,
        lambda cell: _filter(cell, pattern_type_filter=2, principal_filter="User:zoe", operation=int(Op.WRITE)),
        (cluster(Op.DESCRIBE),),
        prepare=_two_acls,
    ),
    Row("create_acls", Api.CREATE_ACLS, 3, _create, (cluster(Op.ALTER),)),
    *(
        Row(f"create_acls_{name}", Api.CREATE_ACLS, 3, _create_bad(bad), (cluster(Op.ALTER),), columns=COLUMNS[:4])
        for name, bad in _BAD_RULES.items()
    ),
    Row("delete_acls", Api.DELETE_ACLS, 3, _delete, (cluster(Op.ALTER),), prepare=_two_acls, ask=_left),
)


def _salted() -> bytes:
    return hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 4096)


def _upsert(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": _salted(), **more}


def _scram_user(cell: Cell, admin: Any) -> None:
    admin.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=(), upsertions=[_upsert(cell.name("s"))])
    users = [{"name": cell.name("s")}]
    until(
        lambda: not admin.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users).results[0].error_code,
        "the user is there",
    )


def _alter_scram(cell: Cell) -> Any:
    return {
        "deletions": [{"name": cell.name("s"), "mechanism": 1}, {"name": cell.name("x"), "mechanism": 1}],
        "upsertions": [
            _upsert(cell.name("n")),
            _upsert(cell.name("few"), iterations=4095),
            _upsert(cell.name("many"), iterations=16385),
            _upsert(cell.name("unknown"), mechanism=7),
            _upsert(""),
        ],
    }


SCRAM = (
    Row(
        "describe_scram",
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        lambda cell: {"users": [{"name": cell.name("s")}, {"name": cell.name("x")}]},
        (cluster(Op.DESCRIBE),),
        prepare=_scram_user,
    ),
    Row(
        "alter_scram_twice",
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        lambda cell: {"deletions": (), "upsertions": [_upsert(cell.name("d")), _upsert(cell.name("d"), mechanism=2)]},
        (cluster(Op.ALTER),),
    ),
    Row("alter_scram", Api.ALTER_USER_SCRAM_CREDENTIALS, 0, _alter_scram, (cluster(Op.ALTER),), prepare=_scram_user),
)


def _token_fields(owner: str | None = None, renewers: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "owner_principal_type": owner and "User",
        "owner_principal_name": owner,
        "max_lifetime": -1,
        "renewers": [{"principal_type": "User", "principal_name": name} for name in renewers],
    }


def _own_token(cell: Cell) -> Any:
    return _token_fields()


def _token_of(owner: str) -> Any:
    return lambda cell: _token_fields(cell.name(owner))


def _ask(cell: Cell, session: Any) -> Any:
    return session.ask_about_token(cell.row.api, cell.row.version, **cell.row.request(cell))


def _tokens(cell: Cell, admin: Any) -> None:
    """Two tokens: one of the user o with the cell's user as renewer, one of the user p."""
    for short, renewers in (("o", (cell.user,)), ("p", ())):
        answer = admin.ask(Api.CREATE_DELEGATION_TOKEN, 3, **_token_fields(cell.name(short), renewers))
        assert not answer.error_code, answer
        cell.state[short] = answer
    owners = [{"principal_type": "User", "principal_name": cell.name(short)} for short in ("o", "p")]
    until(lambda: len(admin.ask(Api.DESCRIBE_DELEGATION_TOKEN, 3, owners=owners).tokens) == 2, "the tokens are there")


def _describe_tokens(cell: Cell) -> Any:
    return {"owners": [{"principal_type": "User", "principal_name": cell.name(short)} for short in ("o", "p")]}


def _describe_all_tokens(cell: Cell, session: Any) -> Any:
    answer = session.ask(Api.DESCRIBE_DELEGATION_TOKEN, 3, owners=None)
    own = [token for token in answer.tokens if token.principal_name.startswith(cell.prefix)]
    return {"error_code": answer.error_code, "owners": sorted(token.principal_name for token in own)}


def _with_token(short: str, field: str) -> Any:
    return lambda cell: {"hmac": cell.state[short].hmac, field: 3_600_000}


def _user(op: Op, short: str) -> Any:
    return lambda cell: [cell.acl(Need(op, Kind.USER, f"User:{cell.name(short)}"))]


def _on_token(op: Op) -> Any:
    """An ACL on the token itself is made when the token exists."""

    def prepare(cell: Cell, admin: Any) -> None:
        _tokens(cell, admin)
        if cell.column.name != "token":
            return
        name = cell.state["p"].token_id
        admin.ask(Api.CREATE_ACLS, 3, creations=[cell.acl(Need(op, Kind.DELEGATION_TOKEN, ""), name=name)])
        until(lambda: any(each[1] == name for each in described_acls(admin)), "the ACL is there")

    return prepare


def _none(cell: Cell) -> list[dict[str, Any]]:
    return []


_CREATES = (
    Column("admin", _none, Login.ADMIN),
    Column("nothing", _none),
    Column("create", _user(Op.CREATE_TOKENS, "o")),
    Column("create_other", _user(Op.CREATE_TOKENS, "p")),
    Column("describe", _user(Op.DESCRIBE_TOKENS, "o")),
    Column("all", _user(Op.ALL, "o")),
    Column("anonymous", _none, Login.NONE),
)
_DESCRIBES = (
    Column("admin", _none, Login.ADMIN),
    Column("nothing", _none),
    Column("describe", _user(Op.DESCRIBE_TOKENS, "p")),
    Column("create", _user(Op.CREATE_TOKENS, "p")),
    Column("token", _none),
    Column("anonymous", _none, Login.NONE),
)
_HIDES = frozenset({"token_id", "hmac"})
TOKENS = (
    Row("create_token", Api.CREATE_DELEGATION_TOKEN, 3, _own_token, columns=_CREATES, ask=_ask),
    Row("create_token_of", Api.CREATE_DELEGATION_TOKEN, 3, _token_of("o"), columns=_CREATES, ask=_ask),
    Row(
        "describe_tokens",
        Api.DESCRIBE_DELEGATION_TOKEN,
        3,
        _describe_tokens,
        columns=_DESCRIBES,
        prepare=_on_token(Op.DESCRIBE),
        hides=_HIDES,
    ),
    Row(
        "describe_all_tokens",
        Api.DESCRIBE_DELEGATION_TOKEN,
        3,
        lambda _: {},
        columns=_DESCRIBES,
        prepare=_on_token(Op.DESCRIBE),
        ask=_describe_all_tokens,
    ),
    Row(
        "renew_token",
        Api.RENEW_DELEGATION_TOKEN,
        2,
        _with_token("o", "renew_period"),
        columns=_DESCRIBES,
        prepare=_on_token(Op.ALL),
        ask=_ask,
    ),
    Row(
        "renew_token_of_other",
        Api.RENEW_DELEGATION_TOKEN,
        2,
        _with_token("p", "renew_period"),
        columns=_DESCRIBES,
        prepare=_on_token(Op.ALL),
        ask=_ask,
    ),
    Row(
        "expire_token",
        Api.EXPIRE_DELEGATION_TOKEN,
        2,
        _with_token("o", "expiry_time_period"),
        columns=_DESCRIBES,
        prepare=_on_token(Op.ALL),
        ask=_ask,
    ),
    Row(
        "expire_token_of_other",
        Api.EXPIRE_DELEGATION_TOKEN,
        2,
        _with_token("p", "expiry_time_period"),
        columns=_DESCRIBES,
        prepare=_on_token(Op.ALL),
        ask=_ask,
    ),
    Row(
        "renew_unknown_token",
        Api.RENEW_DELEGATION_TOKEN,
        2,
        lambda _: {"hmac": b"none", "renew_period": 3_600_000},
        ask=_ask,
    ),
)


LOGINS = (
    Row("handshake_again", Api.SASL_HANDSHAKE, 1, lambda _: {"mechanism": "PLAIN"}, hides=frozenset({"mechanisms"})),
    Row("authenticate_again", Api.SASL_AUTHENTICATE, 2, lambda _: {"auth_bytes": b"\0admin\0wrong"}),
)
ROWS = ACLS + SCRAM + TOKENS + LOGINS
