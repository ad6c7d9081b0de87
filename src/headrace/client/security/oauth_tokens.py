"""Tokens for OAUTHBEARER: where they come from, and when a new one is needed.

::

    sasl_oauth_token_provider               the program's own function
    sasl.oauthbearer.token.endpoint.url     client credentials (``oauth_endpoint.py``), or a file with a token
    unsecuredLoginStringClaim_sub="alice"   in the JAAS line: a token without a signature, for development only

A client keeps a token until 80 % of its lifetime are over. If it then gets no other token, it uses the old one until
the old one expires. The end of a token is what its source says, or its claim ``exp`` if it is a JWT, whichever is
earlier. A token whose end is not known is used for one login.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from logging import getLogger
from time import time
from typing import TYPE_CHECKING, Any

from headrace.client.errors import HeadraceError, SaslAuthenticationFailed
from headrace.properties import ConfigError
from headrace.security.sasl.jaas import jaas_for
from headrace.security.sasl.mechanism import OAUTHBEARER
from headrace.security.sasl.oauthbearer import TokenRefused
from headrace.security.sasl.token_claims import decode_part, seconds

if TYPE_CHECKING:
    from headrace.client.security.options import SecurityOptions
    from headrace.security.sasl.mechanism import ClientMechanism

logger = getLogger(__name__)

_KEPT_FRACTION = 0.8
_MAX_TOKEN_CHARACTERS = 32 * 1024
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION = "extension_"
_UNSECURED = "unsecuredLogin"
_STRING_CLAIM, _NUMBER_CLAIM, _LIST_CLAIM = (f"{_UNSECURED}{kind}Claim_" for kind in ("String", "Number", "List"))
_UNSECURED_EXTENSION = f"{_UNSECURED}Extension_"
_UNSECURED_LIFETIME = f"{_UNSECURED}LifetimeSeconds"


@dataclass(frozen=True)
class Token:
    """A bearer token.

    :param expires_at_s: in seconds since 1970; None if it is not known.
    """

    text: str = field(repr=False)
    expires_at_s: float | None = None

    def __post_init__(self) -> None:
        if len(self.text) > _MAX_TOKEN_CHARACTERS or not _TOKEN.fullmatch(self.text):
            raise SaslAuthenticationFailed(
                "the OAuth token is not a bearer token: it may have letters, digits and -._~+/= only, and at most "
                f"{_MAX_TOKEN_CHARACTERS} characters"
            )


class TokenCredentials:
    """Logs in with tokens, and keeps a token while it is good."""

    mechanism = OAUTHBEARER

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Token]],
        extensions: Mapping[str, str] | None = None,
        *,
        now_s: Callable[[], float] = time,
    ) -> None:
        self._fetch = fetch
        self._extensions = dict(extensions or {})
        self._now_s = now_s
        self._fetching = asyncio.Lock()
        self._kept: Token | None = None
        self._kept_until_s = 0.0

    async def begin(self) -> ClientMechanism:
        from headrace.security.sasl.oauthbearer_client import OAuthBearerClient

        return OAuthBearerClient((await self.token()).text, self._extensions)

    async def token(self) -> Token:
        """
        :raises HeadraceError: if there is no token.
        """
        async with self._fetching:
            now_s = self._now_s()
            kept = self._kept
            if kept is not None and now_s < self._kept_until_s:
                return kept
            try:
                token = await self._fetch()
            except HeadraceError as error:
                if kept is None or kept.expires_at_s is None or self._now_s() >= kept.expires_at_s:
                    raise
                logger.warning("the OAuth token is used until it expires, because there is no new one: %s", error)
                return kept
            ends_at_s = _end_of(token)
            token = Token(token.text, ends_at_s)
            lasts_s = 0.0 if ends_at_s is None else ends_at_s - now_s
            self._kept, self._kept_until_s = token, now_s + lasts_s * _KEPT_FRACTION
            return token


def _end_of(token: Token) -> float | None:
    """Returns when a token expires. A broker ends the session by the claim of the token, not by its source's words."""
    ends = [end_s for end_s in (token.expires_at_s, _claimed_end(token.text)) if end_s is not None]
    return min(ends, default=None)


def _claimed_end(text: str) -> float | None:
    parts = text.split(".")
    if len(parts) != 3:
        return None
    try:
        return seconds(decode_part(parts[1]), "exp")
    except TokenRefused:
        return None  # the broker reads the token, not we


def token_credentials(options: SecurityOptions) -> TokenCredentials:
    """
    :raises ConfigError: if the options name no source of tokens, or a source that is not allowed.
    """
    line = options.sasl_jaas_config
    jaas = {} if line is None else jaas_for(line, OAUTHBEARER).options
    if options.sasl_oauth_token_provider is not None:
        return TokenCredentials(_provided(options.sasl_oauth_token_provider), _extensions(jaas))
    if options.sasl_oauthbearer_token_endpoint_url is not None:
        from headrace.client.security.oauth_endpoint import TokenEndpoint

        endpoint = TokenEndpoint.from_options(options, jaas)
        return TokenCredentials(endpoint.fetch, _extensions(jaas))
    if f"{_STRING_CLAIM}sub" in jaas:
        return TokenCredentials(_unsecured(jaas), _extensions(jaas))
    raise ConfigError("OAUTHBEARER needs tokens: set sasl_oauth_token_provider, or sasl.oauthbearer.token.endpoint.url")


def _extensions(jaas: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(start): value
        for start in (_EXTENSION, _UNSECURED_EXTENSION)
        for name, value in jaas.items()
        if name.startswith(start)
    }


# -- the program's function


def _provided(provider: Any) -> Callable[[], Awaitable[Token]]:
    function = getattr(provider, "token", provider)
    if not callable(function):
        raise ConfigError("sasl_oauth_token_provider must be a function, or an object with a method token()")

    async def fetch() -> Token:
        try:
            given = await (function() if inspect.iscoroutinefunction(function) else asyncio.to_thread(function))
        except HeadraceError:
            raise
        except Exception as error:
            raise SaslAuthenticationFailed(f"sasl_oauth_token_provider raised {type(error).__name__}") from error
        return _token(given)

    return fetch


def _token(given: object) -> Token:
    text, expires_at_s = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if isinstance(text, str) and (expires_at_s is None or isinstance(expires_at_s, int | float)):
        return Token(text, expires_at_s)
    raise SaslAuthenticationFailed(
        "sasl_oauth_token_provider must return a token, or a token and the time at which it expires, in seconds since "
        "1970"
    )


# -- tokens without a signature


def _unsecured(jaas: Mapping[str, str]) -> Callable[[], Awaitable[Token]]:
    lifetime_s = _number(jaas.get(_UNSECURED_LIFETIME, "3600"), _UNSECURED_LIFETIME)
    claims: dict[str, object] = {}
    for name, value in jaas.items():
        if name.startswith(_STRING_CLAIM):
            claims[name.removeprefix(_STRING_CLAIM)] = value
        elif name.startswith(_NUMBER_CLAIM):
            claims[name.removeprefix(_NUMBER_CLAIM)] = _number(value, name)
        elif name.startswith(_LIST_CLAIM):
            claims[name.removeprefix(_LIST_CLAIM)] = value[1:].split(value[0]) if value else []

    async def fetch() -> Token:
        now_s = time()
        payload = {"iat": now_s, "exp": now_s + lifetime_s, **claims}
        return Token(f"{_encoded({'alg': 'none'})}.{_encoded(payload)}.", now_s + lifetime_s)

    return fetch


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"sasl.jaas.config: {name} must be a number") from None


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
