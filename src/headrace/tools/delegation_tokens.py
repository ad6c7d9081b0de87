"""``headrace delegation-tokens``: creates, renews, expires and describes delegation tokens.

The output has the words and columns of Kafka's tool, with the secrets (HMAC). Times are in the local time zone.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.tools.shared.commands import (
    Output,
    Table,
    UsageError,
    chosen_action,
    connect,
    int64,
    new_parser,
    read_text,
    run,
)

if TYPE_CHECKING:
    from headrace.client.admin.delegation_tokens import DelegationToken
    from headrace.security.principal import Principal

_EXAMPLES = """
headrace delegation-tokens --command-config c.properties --create --max-life-time-period -1 --renewer-principal User:bob
headrace delegation-tokens --command-config c.properties --create --max-life-time-period -1 --owner-principal User:carol
headrace delegation-tokens --command-config c.properties --describe --owner-principal User:alice
headrace delegation-tokens --command-config c.properties --renew --renew-time-period -1 --hmac-file hmac
headrace delegation-tokens --command-config c.properties --expire --expiry-time-period -1 --hmac-file hmac
"""
_HEADINGS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
_WIDTHS = (15, 30, 15, 15, 25, 15, 15, 15)
_MAX_SHOWN_MS = 253_402_300_799_000


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "delegation-tokens", "Create, renew, expire and describe delegation tokens of a secured cluster.", _EXAMPLES
    )
    add = parser.add_argument
    add("--create", action="store_true", help="create a token")
    add("--renew", action="store_true", help="give a token more time")
    add("--expire", action="store_true", help="let a token expire")
    add("--describe", action="store_true", help="show the tokens that you may see, with their secrets")
    add(
        "--max-life-time-period", metavar="MS", type=int64,
        help="for --create: how long the token may live, with all renewals; -1: as long as the brokers allow",
    )  # fmt: skip
    add(
        "--renewer-principal", metavar="TYPE:NAME", action="append", default=[],
        help="for --create: who may renew the token, beside its owner; may be given several times",
    )  # fmt: skip
    add(
        "--owner-principal", metavar="TYPE:NAME", action="append", default=[],
        help="for --create: the user for whom the token is (default: you); for --describe: only the tokens of this "
        "user, may be given several times",
    )  # fmt: skip
    add(
        "--renew-time-period", metavar="MS", type=int64,
        help="for --renew: for how long from now on; -1: as long as the brokers allow",
    )  # fmt: skip
    add(
        "--expiry-time-period", metavar="MS", type=int64,
        help="for --expire: after which time the token expires; -1: at once",
    )  # fmt: skip
    add(
        "--hmac", metavar="BASE64",
        help="the secret of the token; other users of this host see it in the list of processes",
    )  # fmt: skip
    add("--hmac-file", metavar="FILE", type=Path, help="a file with the secret of the token, instead of --hmac")
    return parser


# ---------------------------------------------------------------------------------------------------------- actions


def _create(options: Namespace, out: Output) -> None:
    renewers = _principals(options.renewer_principal)
    owners = _principals(options.owner_principal)
    period_ms = options.max_life_time_period
    out.say(f"Calling create token operation with renewers :{_listed(renewers)} , max-life-time-period :{period_ms}")
    with connect(options) as admin:
        token = admin.create_delegation_token(
            renewers=renewers, owner=owners[0] if owners else None, max_lifetime_ms=period_ms
        )
    out.say(f"Created delegation token with tokenId : {token.token_id}")
    out.show(_as_json(token), _lines([token]), _table([token]))


def _renew(options: Namespace, out: Output) -> None:
    text, hmac = _hmac(options)
    period_ms = options.renew_time_period
    out.say(f"Calling renew token operation with hmac :{text} , renew-time-period :{period_ms}")
    with connect(options) as admin:
        expiry_ms = admin.renew_delegation_token(hmac, period_ms=period_ms)
    out.show({"expiryTimestamp": expiry_ms}, f"Completed renew operation. New expiry date : {_date(expiry_ms)}")


def _expire(options: Namespace, out: Output) -> None:
    text, hmac = _hmac(options)
    period_ms = options.expiry_time_period
    out.say(f"Calling expire token operation with hmac :{text} , expire-time-period :{period_ms}")
    with connect(options) as admin:
        expiry_ms = admin.expire_delegation_token(hmac, period_ms=period_ms)
    out.show({"expiryTimestamp": expiry_ms}, f"Completed expire operation. New expiry date : {_date(expiry_ms)}")


def _describe(options: Namespace, out: Output) -> None:
    owners = _principals(options.owner_principal)
    if owners:
        out.say(f"Calling describe token operation for owners: {_listed(owners)}")
    else:
        out.say("Calling describe token operation for current user.")
    with connect(options) as admin:
        tokens = admin.describe_delegation_tokens(owners or None)
    headings, *rows = _lines(tokens)
    total = f"Total number of tokens : {len(tokens)}"
    out.show([_as_json(token) for token in tokens], [f"{total}{headings}", *rows], _table(tokens, total))


_ACTIONS: dict[str, Callable[[Namespace, Output], None]] = {
    "create": _create,
    "renew": _renew,
    "expire": _expire,
    "describe": _describe,
}
#: What each action needs, and what it may have in addition.
_NEEDS = {
    "create": ("max-life-time-period",),
    "renew": ("hmac", "renew-time-period"),
    "expire": ("hmac", "expiry-time-period"),
    "describe": (),
}
_MAY_HAVE = {
    "create": ("renewer-principal", "owner-principal"),
    "renew": (),
    "expire": (),
    "describe": ("owner-principal",),
}
_OPTIONS = (
    "max-life-time-period", "renewer-principal", "owner-principal", "renew-time-period", "expiry-time-period", "hmac",
)  # fmt: skip


def _work(options: Namespace, out: Output) -> None:
    action = chosen_action(options, list(_ACTIONS))
    given = {name for name in _OPTIONS if getattr(options, name.replace("-", "_")) not in (None, [])}
    if options.hmac_file is not None:
        if "hmac" in given:
            raise UsageError("give either --hmac or --hmac-file")
        given.add("hmac")
    for name in _NEEDS[action]:
        if name not in given:
            raise UsageError(f"Missing required argument for --{action}: --{name}")
    for name in sorted(given.difference(_NEEDS[action], _MAY_HAVE[action])):
        raise UsageError(f'Option "--{name}" can\'t be used with option "--{action}"')
    _ACTIONS[action](options, out)


# ----------------------------------------------------------------------------------------------------------- values


def _principals(texts: Sequence[str]) -> list[Principal]:
    from headrace.security.principal import Principal

    try:
        return [Principal.parse(text.strip()) for text in texts]
    except ValueError as error:
        raise UsageError(str(error)) from None


def _hmac(options: Namespace) -> tuple[str, bytes]:
    text = options.hmac if options.hmac_file is None else read_text(options.hmac_file).strip()
    try:
        return text, b64decode(text, validate=True)
    except NotBase64:
        raise UsageError("the HMAC is not base64") from None  # the error must not show a secret


def _listed(principals: Sequence[Principal]) -> str:
    return f"[{', '.join(map(str, principals))}]"


def _date(time_ms: int) -> str:
    return datetime.fromtimestamp(min(max(time_ms, 0), _MAX_SHOWN_MS) / 1_000).strftime("%Y-%m-%dT%H:%M")


def _row(token: DelegationToken) -> tuple[str, ...]:
    return (
        token.token_id,
        token.password,
        str(token.owner),
        str(token.requester),
        _listed(token.renewers),
        *map(_date, (token.issue_ms, token.expiry_ms, token.max_ms)),
    )


def _lines(tokens: Sequence[DelegationToken]) -> list[str]:
    """Each line is preceded by an empty one, as in Kafka's tool."""
    rows = [_HEADINGS, *map(_row, tokens)]
    return ["\n" + " ".join(cell.ljust(width) for cell, width in zip(row, _WIDTHS, strict=True)) for row in rows]


def _table(tokens: Sequence[DelegationToken], title: str = "") -> Table:
    return Table(_HEADINGS, map(_row, tokens), title)


def _as_json(token: DelegationToken) -> dict[str, object]:
    return {
        "tokenId": token.token_id,
        "hmac": token.password,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issue_ms,
        "expiryTimestamp": token.expiry_ms,
        "maxTimestamp": token.max_ms,
    }
