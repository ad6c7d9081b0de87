"""Reads the file of ``--oidc``: the provider, this console as its client, and the URLs that the console may ask.

The URLs of the token endpoint and of the keys come from the provider's own document. Each of them must be listed in
``allowed.urls``, so that a document that somebody has changed cannot make the console ask other servers. All URLs are
https, or http on this host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from headrace.properties import ConfigError, read_properties_file

if TYPE_CHECKING:
    from ssl import SSLContext

WELL_KNOWN = "/.well-known/openid-configuration"
CALLBACK_PATH = "/login/oidc/callback"
SECRET_VARIABLE = "HEADRACE_CONSOLE_OIDC_CLIENT_SECRET"
_TOKENS = ("access", "id")
_NEEDED = ("discovery.url", "client.id", "redirect.url", "allowed.urls")
_KNOWN = (*_NEEDED, "client.secret", "scope", "token", "user.claim")


@dataclass(frozen=True)
class OidcSettings:
    """
    :param redirect_url: the console's own address for the provider's answer, as the provider knows it.
    :param allowed_urls: the URLs of the token endpoint and of the keys that the console may ask.
    :param client_secret: empty for a public client, which PKCE alone protects.
    :param token: which token the brokers get: ``access`` or ``id``.
    :param user_claim: the claim of the ID token with the name that the console shows and audits.
    """

    discovery_url: str
    client_id: str
    redirect_url: str
    allowed_urls: tuple[str, ...]
    client_secret: str = field(default="", repr=False)
    scope: str = "openid"
    token: str = "access"
    user_claim: str = "sub"
    tls: SSLContext | None = field(default=None, repr=False)

    @property
    def provider_host(self) -> str:
        return urlsplit(self.discovery_url).netloc

    @property
    def redirect_origin(self) -> str:
        parts = urlsplit(self.redirect_url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the console by https."""
        return self.redirect_url.startswith("https:")


def read_oidc(path: Path, environment: Mapping[str, str]) -> OidcSettings:
    """Reads the file. The secret may be in the environment instead.

    :raises ConfigError: if a value is missing or not usable. No message has the secret.
    """
    given = {name: value.strip() for name, value in read_properties_file(path).items()}
    unknown = sorted(name for name in given if name not in _KNOWN and not name.startswith("ssl."))
    problems = [f"{path}: unknown name {name}; there are {', '.join(_KNOWN)} and ssl.*" for name in unknown]
    problems += [f"{path}: {name} is missing" for name in _NEEDED if not given.get(name)]
    if problems:
        raise ConfigError(problems)
    settings = OidcSettings(
        discovery_url=given["discovery.url"],
        client_id=given["client.id"],
        redirect_url=given["redirect.url"],
        allowed_urls=tuple(url for each in given["allowed.urls"].split(",") if (url := each.strip())),
        client_secret=given.get("client.secret") or environment.get(SECRET_VARIABLE, "").strip(),
        scope=given.get("scope") or "openid",
        token=given.get("token") or "access",
        user_claim=given.get("user.claim") or "sub",
        tls=_tls(given),
    )
    problems = [f"{path}: {problem}" for problem in _problems(settings)]
    if problems:
        raise ConfigError(problems)
    return settings


def _problems(settings: OidcSettings) -> list[str]:
    named = {"discovery.url": settings.discovery_url, "redirect.url": settings.redirect_url}
    named |= {f"allowed.urls: {url}": url for url in settings.allowed_urls}
    found = [f"{name}: {url_problem(url)}" for name, url in named.items() if url_problem(url)]
    if found:
        return found
    redirect = urlsplit(settings.redirect_url)
    if not urlsplit(settings.discovery_url).path.endswith(WELL_KNOWN):
        found.append(f"discovery.url must end with {WELL_KNOWN}")
    if redirect.path != CALLBACK_PATH or redirect.query:
        found.append(f"redirect.url must be the console's address with the path {CALLBACK_PATH}")
    if settings.token not in _TOKENS:
        found.append(f"token = {settings.token!r}: must be one of {', '.join(_TOKENS)}")
    if "openid" not in settings.scope.split():
        found.append("scope must have the word openid")
    return found


def url_problem(url: str) -> str:
    """Says why the console may not use a URL; empty if it may."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  it raises ValueError for a port that is no number
    except ValueError:
        return "is not a URL"
    if not parts.hostname or parts.username is not None or parts.fragment or not url.isascii() or not url.isprintable():
        return "must be https://HOST/PATH, without a user and a fragment"
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts)):
        return ""
    return "must begin with https://; http:// is for this host only"


def _is_loopback(parts: SplitResult) -> bool:
    try:
        return ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname == "localhost"


def _tls(given: Mapping[str, str]) -> SSLContext | None:
    """Without ``ssl.*``, the issuers that the system trusts."""
    stores = {name: value for name, value in given.items() if name.startswith("ssl.")}
    if not stores:
        return None
    from headrace.security.tls import TlsOptions, client_context

    return client_context(TlsOptions.from_settings(stores))
