"""Gets tokens for OAUTHBEARER from a token endpoint by client credentials (RFC 6749, 4.4), or from a file.

The URL must be listed in ``org.apache.kafka.sasl.oauthbearer.allowed.urls``, as Kafka demands since CVE-2025-27817: an
option that a stranger may set must not make this process read files or ask servers. Redirects are not followed, an
answer has at most 64 KiB, and all attempts together take at most connect timeout plus read timeout. The requests run on
a thread. Text of the endpoint's answer does not appear in errors, except its error code.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, unquote, urlencode, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from headrace.client.errors import BrokerUnreachable, SaslAuthenticationFailed
from headrace.client.retry import Backoff
from headrace.client.security.oauth_tokens import Token
from headrace.properties import ConfigError
from headrace.security.small_files import UnreadableFileError, read_small_text

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from ssl import SSLContext

    from headrace.client.security.options import SecurityOptions

ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_URL = "sasl.oauthbearer.token.endpoint.url"
_MAX_ANSWER_BYTES = 64 * 1024
_MAX_ATTEMPTS = 3
#: OAuth's error codes, such as invalid_client.
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")


class _TryAgain(Exception):
    """The endpoint cannot be reached, or fails at the moment."""


@dataclass(frozen=True)
class TokenEndpoint:
    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str | None = None
    is_url_encoded: bool = False
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    backoff: Backoff = field(default=Backoff(100, 10_000), repr=False)
    tls: SSLContext | None = field(default=None, repr=False)

    @classmethod
    def from_options(cls, options: SecurityOptions, jaas: Mapping[str, str]) -> TokenEndpoint:
        """
        :raises ConfigError: if the URL is not allowed, or the client's id or secret is missing.
        """
        url = options.sasl_oauthbearer_token_endpoint_url
        assert url is not None
        if url not in options.org_apache_kafka_sasl_oauthbearer_allowed_urls:
            raise ConfigError(f"{_URL}: {url} is not allowed; add it to the option {ALLOWED_URLS} if it is right")
        scheme = urlsplit(url).scheme.lower()
        if scheme == "file":
            return cls(url)
        if scheme not in ("http", "https"):
            raise ConfigError(f"{_URL}: {url} must begin with https:, http: or file:")
        client_id = options.sasl_oauthbearer_client_credentials_client_id or jaas.get("clientId")
        secret = options.sasl_oauthbearer_client_credentials_client_secret or jaas.get("clientSecret")
        if not client_id or not secret:
            raise ConfigError(f"{_URL} needs clientId and clientSecret in sasl.jaas.config")
        return cls(
            url,
            client_id,
            secret,
            options.sasl_oauthbearer_scope or jaas.get("scope"),
            options.sasl_oauthbearer_header_urlencode,
            options.sasl_login_connect_timeout_ms,
            options.sasl_login_read_timeout_ms,
            Backoff(options.sasl_login_retry_backoff_ms, options.sasl_login_retry_backoff_max_ms),
            _tls(jaas) if scheme == "https" else None,
        )

    async def fetch(self) -> Token:
        """
        :raises SaslAuthenticationFailed: if the endpoint rejects the client, or its answer has no token.
        :raises BrokerUnreachable: if the endpoint cannot be reached. A later attempt may succeed.
        """
        if urlsplit(self.url).scheme.lower() == "file":
            return await asyncio.to_thread(self._read_file)
        deadline = monotonic() + (self.connect_timeout_ms + self.read_timeout_ms) / 1000
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return await asyncio.to_thread(self._ask, deadline)
            except _TryAgain as error:
                pause_s = self.backoff.delay_ms(attempt) / 1000
                if attempt == _MAX_ATTEMPTS or monotonic() + pause_s >= deadline:
                    raise BrokerUnreachable(f"the token endpoint {self.url} gave no token: {error}") from None
                await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _read_file(self) -> Token:
        path = Path(unquote(urlsplit(self.url).path))
        try:
            return Token(read_small_text(path, _MAX_ANSWER_BYTES).strip())
        except UnreadableFileError as error:
            raise SaslAuthenticationFailed(f"cannot read the token of {_URL}: {error}") from None

    def _ask(self, deadline: float) -> Token:
        opener = OpenerDirector()
        for handler in (ProxyHandler(), HTTPHandler(), HTTPDefaultErrorHandler(), HTTPErrorProcessor()):
            opener.add_handler(handler)
        if self.tls is not None:
            opener.add_handler(HTTPSHandler(context=self.tls))
        try:
            with opener.open(self._request(), timeout=self.connect_timeout_ms / 1000) as response:
                return _token_in(_read(response, deadline))
        except HTTPError as error:
            with error:
                if error.code == 429 or error.code >= 500:
                    raise _TryAgain(f"it answered {error.code}") from None
                raise SaslAuthenticationFailed(
                    f"the token endpoint {self.url} answered {error.code}{_code_in(error)}; check clientId and "
                    f"clientSecret in sasl.jaas.config, and {_URL}"
                ) from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise _TryAgain(str(getattr(reason, "strerror", None) or type(reason).__name__)) from None

    def _request(self) -> Request:
        pair = [quote_plus(one) if self.is_url_encoded else one for one in (self.client_id, self.client_secret)]
        body = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        return Request(
            self.url,
            data=urlencode(body).encode(),
            headers={
                "Authorization": f"Basic {base64.b64encode(':'.join(pair).encode()).decode()}",
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )


def _tls(jaas: Mapping[str, str]) -> SSLContext:
    """The trust store is in the JAAS line, as in Kafka, because the broker's issuer is often another one."""
    from headrace.security.tls import TlsOptions, client_context

    return client_context(TlsOptions.from_settings({name: v for name, v in jaas.items() if name.startswith("ssl.")}))


def _read(response: HTTPResponse, deadline: float) -> bytes:
    content = b""
    while chunk := response.read1(_MAX_ANSWER_BYTES):
        content += chunk
        if len(content) > _MAX_ANSWER_BYTES:
            raise SaslAuthenticationFailed(f"the token endpoint's answer has more than {_MAX_ANSWER_BYTES} bytes")
        if monotonic() > deadline:
            raise _TryAgain("it did not answer in time")
    return content


def _token_in(content: bytes) -> Token:
    try:
        answer = json.loads(_text(content))
        text = answer.get("access_token") or answer.get("id_token")
        lasts_s = answer.get("expires_in")
    except (ValueError, AttributeError, RecursionError):
        text = lasts_s = None
    if not isinstance(text, str):
        raise SaslAuthenticationFailed("the token endpoint's answer has no access_token")
    return Token(text, time() + float(lasts_s) if isinstance(lasts_s, int | float) else None)


def _code_in(error: HTTPError) -> str:
    try:
        code = json.loads(error.read(_MAX_ANSWER_BYTES)).get("error")
    except (ValueError, AttributeError, OSError, RecursionError):
        return ""
    return f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SaslAuthenticationFailed("the OAuth token is not text") from None
