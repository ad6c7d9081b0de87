"""Checks the ``Authorization`` header of HTTP requests: a bearer token, a user with a password, or either.

The secrets come from files or from the environment, never from a command line, which all users of a host can read. The
time of a comparison depends neither on the secret nor on how much of it was right. A failed check gives no reason.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from headrace.properties import ConfigError
from headrace.security.small_files import UnreadableFileError, read_small_text

_REALM = 'realm="headrace"'
_MAX_SECRET_BYTES = 4096


@dataclass(frozen=True)
class Access:
    """
    :param bearer_token: empty if clients cannot use a token.
    :param basic: ``user:password``; empty if clients cannot use a password.
    """

    bearer_token: str = field(default="", repr=False)
    basic: str = field(default="", repr=False)

    @property
    def is_required(self) -> bool:
        return bool(self.bearer_token or self.basic)

    def allows(self, authorization: str | None) -> bool:
        """Whether a request with this ``Authorization`` header is answered. Without a secret, all requests are."""
        if not self.is_required:
            return True
        scheme, _, credentials = (authorization or "").strip().partition(" ")
        expected = self._expected().get(scheme.lower())
        # A request with an unknown scheme takes as long as one with a wrong secret.
        is_equal = _is_equal(credentials.strip(), expected or "")
        return is_equal and bool(expected)

    def challenges(self) -> tuple[str, ...]:
        """The values of ``WWW-Authenticate``, one header each."""
        basic = f'Basic {_REALM}, charset="UTF-8"'
        return tuple(text for text, secret in ((f"Bearer {_REALM}", self.bearer_token), (basic, self.basic)) if secret)

    def _expected(self) -> dict[str, str]:
        found = {"bearer": self.bearer_token, "basic": b64encode(self.basic.encode()).decode() if self.basic else ""}
        return {scheme: text for scheme, text in found.items() if text}


def _is_equal(given: str, expected: str) -> bool:
    """Compares digests, so that not even the length of the secret has an effect on the time."""
    return hmac.compare_digest(sha256(given.encode(errors="replace")).digest(), sha256(expected.encode()).digest())


def read_access(
    bearer_token_file: str | None,
    basic_file: str | None,
    environment: Mapping[str, str],
    *,
    bearer_variable: str,
    basic_variable: str,
) -> Access:
    """Reads the secrets. A file wins over the environment variable of the same kind.

    :raises ConfigError: if a file cannot be read, or a secret is not usable. The message has no secret.
    """
    bearer, bearer_from = _secret(bearer_token_file, environment, bearer_variable)
    basic, basic_from = _secret(basic_file, environment, basic_variable)
    if any(character.isspace() for character in bearer) or not bearer.isascii():
        raise ConfigError(f"{bearer_from}: a bearer token has only ASCII characters and no spaces")
    if basic and not (basic.partition(":")[0] and basic.partition(":")[2]):
        raise ConfigError(f"{basic_from}: write one line USER:PASSWORD")
    return Access(bearer, basic)


def _secret(file: str | None, environment: Mapping[str, str], variable: str) -> tuple[str, str]:
    """A secret, and the name of its source."""
    if not file:
        return environment.get(variable, "").strip(), f"the environment variable {variable}"
    try:
        text = read_small_text(Path(file), _MAX_SECRET_BYTES).strip()
    except UnreadableFileError as error:
        raise ConfigError(f"cannot read {file}: {error}") from None
    if not text:
        raise ConfigError(f"{file} is empty: write the secret into the file")
    if len(text.splitlines()) > 1:
        raise ConfigError(f"{file} has more than one line")
    return text, file
