"""The client's side of an OAUTHBEARER login (RFC 7628).

::

    client first   n,,^Aauth=Bearer TOKEN^Aname=value^A^A        ^A is the byte 1; the pairs are extensions (KIP-342)
    server         empty: the token is accepted; JSON: it is not, and the client answers ^A to end the login
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.security.sasl.mechanism import OAUTHBEARER, AuthenticationFailed

_SEPARATOR = "\x01"
_NAME = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


class OAuthBearerClient:
    name = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        """
        :raises AuthenticationFailed: if an extension cannot be sent.
        """
        for name, value in (extensions or {}).items():
            if name == "auth" or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise AuthenticationFailed(f"the extension {name!r} of OAUTHBEARER has an invalid name or value")
        self._token = token
        self._extensions = dict(extensions or {})
        self._has_failed = False
        self.is_complete = False

    def first(self) -> bytes:
        pairs = [f"auth=Bearer {self._token}", *(f"{name}={value}" for name, value in self._extensions.items())]
        return _SEPARATOR.join(["n,,", *pairs, "", ""]).encode()

    def step(self, challenge: bytes) -> bytes | None:
        if self._has_failed:
            raise AuthenticationFailed("the server did not end a login that it refused")
        if challenge:
            self._has_failed = True
            return _SEPARATOR.encode()
        self.is_complete = True
        return None
