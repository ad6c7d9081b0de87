"""The server's side of an OAUTHBEARER login (RFC 7628). ``oauthbearer_client.py`` is the client's side.

::

    client first   n,[a=AUTHZID],^Aauth=Bearer TOKEN^Aname=value^A^A      ^A is the byte 1
    server         empty if the token is valid; else JSON such as {"status":"invalid_token"}
    client         ^A after the JSON; then the login fails with the JSON as its text

The further pairs are extensions (KIP-342). Headrace accepts and ignores them, as Kafka's own validators do. Who may
call a token valid is not part of this module: ``jwt_validation.py`` checks signed tokens, ``unsecured_jws.py`` reads
tokens without a signature.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from headrace.security.sasl.mechanism import OAUTHBEARER, AuthenticationFailed, ServerState, text_of
from headrace.security.sasl.scram_messages import unescaped

_SEPARATOR = "\x01"
_PAIR = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_TOKEN = re.compile(r"bearer +([-_.A-Za-z0-9]+=*)", re.IGNORECASE)
#: A longer token is refused before it is decoded.
MAX_TOKEN_LENGTH = 64 * 1024
#: A message with more pairs is refused before they are looked at.
_MAX_PAIRS = 100

INVALID_TOKEN = "invalid_token"
INSUFFICIENT_SCOPE = "insufficient_scope"


class ValidToken(NamedTuple):
    """Whom a valid token is for, and how long the token is valid."""

    principal_name: str
    expires_at_ms: int


class TokenRefused(Exception):
    """A token is not valid. ``str`` is for the log; the client gets the status, and the scope that it needs."""

    def __init__(self, reason: str, *, status: str = INVALID_TOKEN, scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope

    def to_json(self) -> str:
        answer = {"status": self.status} if self.scope is None else {"status": self.status, "scope": self.scope}
        return json.dumps(answer, separators=(",", ":"))


class OAuthBearerServer(ServerState):
    def __init__(self, validate: Callable[[str], ValidToken], *, may_block: bool = False) -> None:
        """
        :param validate: returns whom a token is for, or raises :class:`TokenRefused`.
        :param may_block: whether ``validate`` may have to fetch keys.
        """
        super().__init__(OAUTHBEARER)
        self.may_block = may_block
        self._validate = validate
        self._refused: TokenRefused | None = None

    def step(self, token: bytes) -> bytes:
        if self._refused is not None:
            # RFC 7628 lets the client answer the JSON with one separator. Whatever it answers, the login has failed.
            raise AuthenticationFailed(str(self._refused), for_peer=self._refused.to_json())
        authorization_id, bearer = _read_first(token)
        try:
            valid = self._validate(bearer)
        except TokenRefused as refused:
            self._refused = refused
            return refused.to_json().encode()
        if authorization_id not in ("", valid.principal_name):
            raise AuthenticationFailed(
                "the authorization id is not the token's user",
                for_peer="Authentication failed: Client requested an authorization id that is different from the "
                "token's principal name",
            )
        self.expires_at_ms = valid.expires_at_ms
        self._complete(valid.principal_name)
        return b""


def _read_first(token: bytes) -> tuple[str, str]:
    """Returns the authorization id and the bearer token of the first message.

    :raises AuthenticationFailed: if the message is malformed.
    """
    text = text_of(token, "the OAUTHBEARER message")
    header, *pairs = text.split(_SEPARATOR, _MAX_PAIRS + 3)
    if len(pairs) > _MAX_PAIRS + 2:  # two separators end the message
        raise AuthenticationFailed("the OAUTHBEARER message has too many pairs")
    if len(pairs) < 3 or pairs[-2:] != ["", ""]:
        raise AuthenticationFailed("the OAUTHBEARER message has no end")
    flag, _, rest = header.partition(",")
    authorization_id, comma, more = rest.partition(",")
    if flag != "n" or not comma or more or not (authorization_id == "" or authorization_id.startswith("a=")):
        raise AuthenticationFailed("the OAUTHBEARER message has a malformed header")
    values: dict[str, str] = {}
    for pair in pairs[:-2]:
        found = _PAIR.fullmatch(pair)
        if found is None or found[1] in values:
            raise AuthenticationFailed("the OAUTHBEARER message has a malformed or repeated pair")
        values[found[1]] = found[2]
    bearer = _TOKEN.fullmatch(values.get("auth", ""))
    if bearer is None:
        raise AuthenticationFailed("the OAUTHBEARER message has no bearer token")
    if len(bearer[1]) > MAX_TOKEN_LENGTH:
        raise AuthenticationFailed(f"the bearer token is longer than {MAX_TOKEN_LENGTH} characters")
    return unescaped(authorization_id[2:]) if authorization_id else "", bearer[1]
