"""Derives the secrets of one login from a cookie, so that the console keeps nothing for visitors without a login.

::

    cookie     BEGAN_MS.RANDOM.NEXT        NEXT is base64 of the page to open afterwards
    state      HMAC(key, "state" cookie)         shows that the answer belongs to this browser
    nonce      HMAC(key, "nonce" cookie)         shows that the ID token was issued for this login
    verifier   HMAC(key, "verifier" cookie)      PKCE (RFC 7636): only who began the login can use the code

The key is random and in memory. So a restart of the console ends logins that have begun. A login may take ten minutes.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from dataclasses import dataclass, field
from hashlib import sha256

LONGEST_MS = 600_000
_LONGEST_COOKIE = 3_500
_LONGEST_NEXT = 2_000


@dataclass(frozen=True)
class Attempt:
    """A login of one browser.

    :ivar next: the path to open after the login, as the browser gave it.
    """

    cookie: str = field(repr=False)
    began_ms: int
    next: str
    key: bytes = field(repr=False)

    @property
    def state(self) -> str:
        return self._derived("state")

    @property
    def nonce(self) -> str:
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        return self._derived("verifier")

    @property
    def challenge(self) -> str:
        """The hash of the verifier (the method S256), which the provider gets first."""
        return _base64(sha256(self.verifier.encode()).digest())

    def _derived(self, purpose: str) -> str:
        return _base64(hmac.digest(self.key, f"{purpose} {self.cookie}".encode(), "sha256"))


def begin_attempt(key: bytes, now_ms: int, following: str) -> Attempt:
    following = following if len(following) <= _LONGEST_NEXT else "/"
    cookie = f"{now_ms}.{secrets.token_urlsafe(32)}.{_base64(following.encode(errors='replace'))}"
    return Attempt(cookie, now_ms, following, key)


def resume_attempt(key: bytes, now_ms: int, cookie: str, state: str) -> Attempt | None:
    """Returns the login that a browser has begun; None if the state is not that of its cookie, or is too old."""
    began, _, rest = cookie.partition(".")
    _, _, following = rest.partition(".")
    if len(cookie) > _LONGEST_COOKIE or not cookie.isascii() or not began.isdecimal() or not following:
        return None
    try:
        path = base64.urlsafe_b64decode(following + "=" * (-len(following) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    found = Attempt(cookie, int(began), path, key)
    is_ours = hmac.compare_digest(found.state.encode(), state.encode(errors="replace"))
    return found if is_ours and 0 <= now_ms - found.began_ms <= LONGEST_MS else None


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
