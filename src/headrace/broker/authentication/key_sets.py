"""Fetches the key set of an OpenID provider, and keeps it: from an https or a file URL, or by http from this host.

The URL is a setting, and has to be in the list of allowed URLs, too (``configs/oauth_rules.py``): a setting that can be
changed must not make a broker read any file or ask any server (CVE-2025-27817). Redirects are not followed. An answer
has at most one MiB, and a fetch takes at most ten seconds.

Logins run on threads, and the thread of a login fetches keys if that is necessary. At most one thread fetches at a
time; meanwhile the others use the keys that there are. The keys are fetched again when they are older than
``sasl.oauthbearer.jwks.endpoint.refresh.ms``, or when a token names a key that they do not have: the provider may have
a new key. Strangers can name unknown keys, so this happens at most once in ten seconds. After a failure the next
attempt waits, twice as long each time. Without keys, no token is valid.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from headrace.broker.configs.oauth_rules import is_loopback_url
from headrace.security.sasl.jwt_validation import KeySet, KeySetError
from headrace.security.sasl.oauthbearer import TokenRefused

if TYPE_CHECKING:
    from ssl import SSLContext

    from headrace.runtime.clock import Clock

logger = getLogger(__name__)

MAX_BYTES = 1024 * 1024
TIMEOUT_S = 10.0
#: An unknown key makes the broker fetch the keys at most so often.
MIN_INTERVAL_MS = 10_000


class ProvidedKeys:
    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        refresh_ms: int,
        backoff_ms: int,
        max_backoff_ms: int,
        fetch: Callable[[], bytes],
    ) -> None:
        self._url = url
        self._clock = clock
        self._refresh_ms = refresh_ms
        self._backoff_ms = backoff_ms
        self._max_backoff_ms = max_backoff_ms
        self._fetch = fetch
        self._keys: KeySet | None = None
        self._lock = threading.Lock()
        #: When keys may be fetched again, because they are old or because a key is unknown.
        self._due_at_ms = self._unknown_due_at_ms = clock.monotonic_ms()
        self._failures = 0

    @property
    def has_keys(self) -> bool:
        return self._keys is not None

    def with_key(self, key_id: str | None) -> KeySet:
        """Returns the keys, fetched again if they are old, or if they lack a key.

        :raises TokenRefused: if there are no keys.
        """
        keys, now_ms = self._keys, self._clock.monotonic_ms()
        is_old = now_ms >= self._due_at_ms
        is_unknown = (keys is None or key_id not in keys) and now_ms >= self._unknown_due_at_ms
        if (is_old or is_unknown) and self._lock.acquire(blocking=False):
            try:
                self.refresh()
            finally:
                self._lock.release()
            keys = self._keys
        if keys is None:
            raise TokenRefused(f"there are no keys of {self._url} to check tokens with")
        return keys

    def refresh(self) -> None:
        """Fetches the keys. If that fails, the earlier keys stay."""
        try:
            keys = KeySet.from_json(self._fetch())
        except (OSError, ValueError, KeySetError) as error:
            wait_ms = min(self._backoff_ms << min(self._failures, 20), self._max_backoff_ms)
            self._failures += 1
            self._due_at_ms = self._unknown_due_at_ms = self._clock.monotonic_ms() + wait_ms
            logger.error("cannot fetch the keys of %s: %s", self._url, error)
            return
        now_ms = self._clock.monotonic_ms()
        self._keys, self._failures = keys, 0
        self._due_at_ms, self._unknown_due_at_ms = now_ms + self._refresh_ms, now_ms + MIN_INTERVAL_MS
        logger.info("fetched %d keys of %s", len(keys), self._url)


def fetch_file(url: str) -> bytes:
    """
    :raises OSError: if the file cannot be read.
    :raises ValueError: if the file is too large.
    """
    with Path(unquote(urlsplit(url).path)).open("rb") as file:
        return _limited(file.read(MAX_BYTES + 1))


def fetch_http(url: str, tls: SSLContext | None) -> bytes:
    """
    :raises OSError: if the server does not answer with the content.
    :raises ValueError: if the answer is too large, or is no answer of HTTP.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    assert parts.scheme == "https" or is_loopback_url(parts)
    connection = (
        HTTPSConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S, context=tls)
        if parts.scheme == "https"
        else HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    )
    deadline = threading.Timer(TIMEOUT_S, lambda: connection.sock and connection.sock.shutdown(2))
    deadline.daemon = True
    deadline.start()
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Accept": "application/json", "User-Agent": "headrace"})
        response = connection.getresponse()
        if response.status != 200:
            raise OSError(f"the answer has the status {response.status}")
        return _limited(response.read(MAX_BYTES + 1))
    except HTTPException as error:
        raise ValueError(f"the answer is malformed ({type(error).__name__})") from None
    finally:
        deadline.cancel()
        connection.close()


def _limited(content: bytes) -> bytes:
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    return content
