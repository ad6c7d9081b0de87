"""SASL PLAIN (RFC 4616): the client sends name and password as they are, in one token.

::

    authorization id  NUL  user name  NUL  password

The authorization id is empty or the user name; nobody logs in as somebody else. The answer to a wrong password and the
answer to an unknown user are the same, and both take one comparison of two digests.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Protocol

from headrace.security.sasl.mechanism import PLAIN, AuthenticationFailed, ServerState, text_of

_WRONG = "Authentication failed: Invalid username or password"
_OTHER_USER = "Authentication failed: Client requested an authorization id that is different from username"


class PasswordCheck(Protocol):
    """Says whether a user has a password, in a time that depends on neither."""

    def __call__(self, username: str, password: str) -> bool: ...


class PlainServer(ServerState):
    def __init__(self, is_password_of: PasswordCheck) -> None:
        super().__init__(PLAIN)
        self._is_password_of = is_password_of

    def step(self, token: bytes) -> bytes:
        parts = text_of(token, "the PLAIN token").split("\0", 3)
        if len(parts) != 3:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise AuthenticationFailed(text, for_peer=text)
        authorization_id, username, password = parts
        if not username or not password:
            text = f"Authentication failed: {'password' if username else 'username'} not specified"
            raise AuthenticationFailed(text, for_peer=text)
        if not self._is_password_of(username, password):
            raise AuthenticationFailed("unknown user or wrong password", for_peer=_WRONG)
        if authorization_id not in ("", username):
            raise AuthenticationFailed("the authorization id is not the user name", for_peer=_OTHER_USER)
        self._complete(username)
        return b""


class PlainClient:
    name = PLAIN

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password
        self.is_complete = False

    def first(self) -> bytes:
        return f"\0{self._username}\0{self._password}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise AuthenticationFailed("the server answered PLAIN with a challenge")
        self.is_complete = True
        return None


class PlainUsers:
    """The users of a listener, from the options ``user_NAME="password"`` of its JAAS line."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        # Digests have one length, so a comparison says nothing about the length of a password.
        self._key = secrets.token_bytes(32)
        self._digests = {name: self._digest(password) for name, password in passwords.items()}
        self._nobody = secrets.token_bytes(32)

    def __len__(self) -> int:
        return len(self._digests)

    def __call__(self, username: str, password: str) -> bool:
        expected = self._digests.get(username, self._nobody)
        return hmac.compare_digest(expected, self._digest(password))

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), hashlib.sha256)
