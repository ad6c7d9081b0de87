"""The two sides of a SASL mechanism, and how a login fails.

A login is a dialog of tokens. The client sends the first token (``first()``). Each side gets the other side's token by
``step(token)``, and returns its next token. A server is complete when it has accepted the client; a client is complete
when it has accepted the server. Some servers return an empty token at the end.

A server that refuses a client raises :class:`AuthenticationFailed`. Its text is for the log of this side only. The peer
gets ``for_peer``, which is None for most failures: then the peer gets one general sentence that does not say what was
wrong, so that nobody can search for user names.
"""

from __future__ import annotations

from typing import Protocol

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
#: The mechanisms that Headrace has, in the order in which messages list them.
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


class AuthenticationFailed(Exception):
    """The login failed. ``str`` is for the log of this side, ``for_peer`` for the peer."""

    def __init__(self, reason: str, *, for_peer: str | None = None) -> None:
        super().__init__(reason)
        self.for_peer = for_peer


class ServerMechanism(Protocol):
    """The server's side of one login."""

    @property
    def name(self) -> str:
        """The name of the mechanism."""

    @property
    def may_block(self) -> bool:
        """Whether ``step`` may wait for the network or a file, and must run on a thread."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def authorization_id(self) -> str:
        """The user's name. Only when the login is complete."""

    @property
    def expires_at_ms(self) -> int | None:
        """The time at which the user's credentials expire. None: the credentials do not expire."""

    @property
    def is_token_authenticated(self) -> bool:
        """Whether the user logged in with a delegation token."""

    def step(self, token: bytes) -> bytes:
        """Takes the client's next token, and returns the answer.

        :raises AuthenticationFailed: if the login has failed. The object is then of no more use.
        """


class ClientMechanism(Protocol):
    """The client's side of one login."""

    @property
    def name(self) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    def first(self) -> bytes:
        """Returns the first token."""

    def step(self, challenge: bytes) -> bytes | None:
        """Takes the server's token, and returns the next token, or None if there is nothing more to send.

        :raises AuthenticationFailed: if the server refused the login, or did not prove that it knows the user.
        """


class ServerState:
    """The state that every server's side has: the progress of the login, and the user that has logged in."""

    may_block = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_complete = False
        self.expires_at_ms: int | None = None
        self.is_token_authenticated = False
        self._authorization_id: str | None = None

    @property
    def authorization_id(self) -> str:
        assert self.is_complete, "nobody has logged in"
        assert self._authorization_id is not None
        return self._authorization_id

    def _complete(self, authorization_id: str) -> None:
        assert not self.is_complete
        self._authorization_id = authorization_id
        self.is_complete = True


def text_of(token: bytes, what: str) -> str:
    """Returns a token as text.

    :raises AuthenticationFailed: if the token is not UTF-8.
    """
    try:
        return bytes(token).decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed(f"{what} is not UTF-8") from None
