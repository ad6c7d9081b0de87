"""Asks an OpenID provider: its document, its keys, and the tokens for a code. Checks the ID token.

The document says where everything is; it is asked for by the first login, and again after an hour. The issuer must be
that of the discovery URL. The ID token must be signed by a key of the provider with an asymmetric algorithm, name the
issuer, this client as its audience and the nonce of the login, and be valid now. The keys are fetched again if a token
names an unknown key, at most once in ten seconds.
"""

from __future__ import annotations

import base64
import hmac
import re
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from headrace.console.oidc.attempt import Attempt
from headrace.console.oidc.requests import ProviderProblem, ask, read_answer
from headrace.console.oidc.settings import WELL_KNOWN, OidcSettings, url_problem
from headrace.console.problems import Refused
from headrace.runtime.clock import Clock
from headrace.security.sasl.jwt_validation import JwtValidator, KeySet, KeySetError
from headrace.security.sasl.oauthbearer import TokenRefused
from headrace.security.sasl.token_claims import decode_part, seconds

_KEPT_MS = 3_600_000
_UNKNOWN_KEY_MS = 10_000
_SKEW_MS = 30_000
_LONGEST_USER = 255
#: An error code of OAuth.
ERROR_CODE = re.compile(r"[a-z_]{1,64}")


@dataclass(frozen=True)
class Login:
    """The result of a login.

    :ivar token: what the brokers get.
    :ivar ends_ms: when the token ends, in milliseconds since 1970; the session ends then.
    """

    user: str
    token: str = field(repr=False)
    ends_ms: int


@dataclass(frozen=True)
class _Endpoints:
    issuer: str
    authorization: str
    token: str
    keys: str
    is_secret_in_body: bool


class Provider:
    """One provider. Its methods block, so they run on threads."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._endpoints: _Endpoints | None = None
        self._endpoints_ms = 0
        self._keys: KeySet | None = None
        self._keys_ms = 0

    def address_for(self, attempt: Attempt) -> str:
        """The provider's page for a login.

        :raises ProviderProblem: if the provider cannot be used.
        """
        settings, endpoints = self._settings, self._found_endpoints()
        query = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": settings.redirect_url,
            "scope": settings.scope,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(endpoints.authorization).query else "?"
        return f"{endpoints.authorization}{joint}{urlencode(query)}"

    def log_in(self, attempt: Attempt, code: str, issuer: str | None) -> Login:
        """Changes the code for tokens, and checks them.

        :param issuer: the parameter ``iss`` of the provider's answer (RFC 9207), if there is one.
        :raises ProviderProblem: if the provider gives no tokens.
        :raises Refused: if the tokens are not good.
        """
        endpoints = self._found_endpoints()
        if issuer is not None and issuer != endpoints.issuer:
            raise Refused("the answer is that of another provider (iss)")
        answer = self._tokens(endpoints, attempt, code)
        id_token = answer.get("id_token")
        if not isinstance(id_token, str):
            raise ProviderProblem("the provider gave no ID token; ask for the scope openid")
        try:
            user, id_ends_ms = self._checked(endpoints, id_token, attempt.nonce)
        except TokenRefused as error:
            raise Refused(f"the ID token is not good: {error}") from None
        if self._settings.token == "id":
            return Login(user, id_token, id_ends_ms)
        token = answer.get("access_token")
        if not isinstance(token, str) or str(answer.get("token_type", "")).lower() != "bearer":
            raise ProviderProblem("the provider gave no bearer token; set token=id to use the ID token")
        return Login(user, token, self._end_of(token, answer.get("expires_in"), id_ends_ms))

    # -- the document

    def _found_endpoints(self) -> _Endpoints:
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._endpoints is None or now_ms - self._endpoints_ms > _KEPT_MS:
                self._endpoints, self._endpoints_ms = self._read_endpoints(), now_ms
            return self._endpoints

    def _read_endpoints(self) -> _Endpoints:
        url = self._settings.discovery_url
        status, content = ask(url, self._settings.tls)
        if status != 200:
            raise ProviderProblem(f"{url} answered {status}")
        document = read_answer(url, content)
        names = ("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri")
        found = {name: document.get(name) for name in names}
        missing = [name for name, value in found.items() if not isinstance(value, str)]
        if missing:
            raise ProviderProblem(f"the document of {url} has no {', '.join(missing)}")
        issuer, authorization, token, keys = (str(found[name]) for name in names)
        if issuer.removesuffix("/") != url.removesuffix(WELL_KNOWN):
            raise ProviderProblem(f"the document of {url} is that of another issuer")
        if problem := url_problem(authorization):
            raise ProviderProblem(f"authorization_endpoint {problem}")
        for name, asked in (("token_endpoint", token), ("jwks_uri", keys)):
            if asked not in self._settings.allowed_urls:
                raise ProviderProblem(f"the {name} {asked[:200]} is not in allowed.urls; add it there if it is right")
        methods = document.get("token_endpoint_auth_methods_supported")
        is_in_body = isinstance(methods, list) and "client_secret_basic" not in methods
        return _Endpoints(issuer, authorization, token, keys, is_in_body)

    # -- the tokens

    def _tokens(self, endpoints: _Endpoints, attempt: Attempt, code: str) -> dict[str, Any]:
        settings = self._settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.redirect_url,
            "code_verifier": attempt.verifier,
        }
        headers = {}
        if settings.client_secret and not endpoints.is_secret_in_body:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form["client_id"] = settings.client_id
            if settings.client_secret:
                form["client_secret"] = settings.client_secret
        status, content = ask(endpoints.token, settings.tls, form, headers)
        if status != 200:
            raise ProviderProblem(f"the token endpoint answered {status}{_code_in(content)}")
        return read_answer(endpoints.token, content)

    def _checked(self, endpoints: _Endpoints, id_token: str, nonce: str) -> tuple[str, int]:
        """The user of an ID token, and when the token ends.

        :raises TokenRefused: if the token is not good.
        """
        settings = self._settings
        validator = JwtValidator(
            lambda key_id: self._keys_with(endpoints.keys, key_id),
            audiences=frozenset({settings.client_id}),
            issuer=endpoints.issuer,
            skew_ms=_SKEW_MS,
            principal_claim=settings.user_claim,
        )
        valid = validator.validate(id_token, self._clock.wall_ms())
        claims = decode_part(id_token.split(".")[1])
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(errors="replace"), nonce.encode()):
            raise TokenRefused("the token was issued for another login (nonce)")
        audience = claims.get("aud")
        has_others = isinstance(audience, list) and len(audience) > 1
        if claims.get("azp", None if has_others else settings.client_id) != settings.client_id:
            raise TokenRefused("the token was issued to another client (azp)")
        return valid.principal_name[:_LONGEST_USER], valid.expires_at_ms

    def _keys_with(self, url: str, key_id: str | None) -> KeySet:
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            age_ms = now_ms - self._keys_ms
            keys = self._keys
            is_due = keys is None or age_ms > _KEPT_MS or (key_id not in keys and age_ms > _UNKNOWN_KEY_MS)
            if is_due:
                status, content = ask(url, self._settings.tls)
                try:
                    keys = KeySet.from_json(content if status == 200 else b"")
                except KeySetError as error:
                    raise ProviderProblem(f"{url} has no keys: {error}") from None
                self._keys, self._keys_ms = keys, now_ms
            assert keys is not None
            return keys

    def _end_of(self, token: str, lasts_s: object, otherwise_ms: int) -> int:
        """The end of an access token: that of the provider's answer or of the token, whichever is earlier."""
        ends = []
        if isinstance(lasts_s, int | float) and not isinstance(lasts_s, bool) and 0 <= lasts_s <= 1e9:
            ends.append(self._clock.wall_ms() + int(lasts_s * 1_000))
        parts = token.split(".")
        if len(parts) == 3:
            try:
                claimed_s = seconds(decode_part(parts[1]), "exp")
            except TokenRefused:
                claimed_s = None  # The brokers read the token, not the console.
            if claimed_s is not None:
                ends.append(int(claimed_s * 1_000))
        return min(ends, default=otherwise_ms)


def _code_in(content: bytes) -> str:
    """OAuth's error code. Other texts of the provider are not shown."""
    try:
        code = read_answer("", content).get("error")
    except ProviderProblem:
        return ""
    return f" ({code})" if isinstance(code, str) and ERROR_CODE.fullmatch(code) else ""
