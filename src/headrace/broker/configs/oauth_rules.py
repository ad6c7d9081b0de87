"""Checks how a listener with OAUTHBEARER verifies tokens. A listener that could not verify them is refused.

=================================================  ==================================================================
``sasl.oauthbearer.jwks.endpoint.url``             signed tokens; the keys come from this https or file URL, or http
                                                   URL of a loopback address, which has to be in
                                                   ``org.apache.kafka.sasl.oauthbearer.allowed.urls``
JAAS options ``unsecuredValidator...``             tokens without a signature, for development only
=================================================  ==================================================================
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from headrace.properties import ConfigError
from headrace.security.ip_addresses import is_loopback
from headrace.security.sasl.unsecured_jws import UnsecuredValidator

if TYPE_CHECKING:
    from headrace.broker.configs.listener_config import ListenerConfig
    from headrace.security.sasl.jaas import JaasEntry

JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
#: The same list as an environment variable. Kafka has it as a property of the Java process.
ALLOWED_URLS_VARIABLE = "ORG_APACHE_KAFKA_SASL_OAUTHBEARER_ALLOWED_URLS"
_HANDLER = "sasl.server.callback.handler.class"
_SCHEMES = ("https", "http", "file")


def allowed_urls(settings: ListenerConfig) -> Sequence[str]:
    from_environment = os.environ.get(ALLOWED_URLS_VARIABLE, "").split(",")
    return [*settings.list(ALLOWED_URLS), *(url.strip() for url in from_environment if url.strip())]


def is_loopback_url(parts: SplitResult) -> bool:
    """Whether the URL's host is this host, so that http is not sent over a network."""
    return parts.hostname == "localhost" or is_loopback(parts.hostname or "")


def oauth_problems(listener: str, settings: ListenerConfig, entry: JaasEntry | None) -> Iterator[str]:
    """Yields one line per mistake.

    :param settings: the settings of OAUTHBEARER on the listener.
    """
    url, name = settings.optional_str(JWKS_URL), settings.name_of(JWKS_URL)
    try:
        unsecured = UnsecuredValidator.from_options({} if entry is None else entry.options)
    except ConfigError as error:
        yield f"Listener {listener}: {error}"
        return
    if url and unsecured:
        yield f"Listener {listener} has both {name} and options of the unsecured validator: remove one of them"
    elif url:
        yield from _url_problems(url, name, allowed_urls(settings))
    elif unsecured is None or settings.optional_str(_HANDLER):
        yield (
            f"Listener {listener} has OAUTHBEARER, but no way to verify tokens: set {name} to the key set of your "
            f"provider, and {ALLOWED_URLS} to the same URL. For development only: set "
            f'unsecuredValidatorAllowableClockSkewMs="0" in its JAAS line'
        )


def _url_problems(url: str, name: str, allowed: Sequence[str]) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in _SCHEMES and (parts.scheme == "file") == (not parts.hostname) and parts.port != 0
        is_valid = is_valid and (parts.scheme != "http" or is_loopback_url(parts))
    except ValueError:
        is_valid = False
    if not is_valid or (parts.username or parts.password or parts.fragment):
        yield (
            f"Invalid value for configuration {name}: must be a URL that begins with https:// or file:///, "
            "or with http:// for a provider at a loopback address"
        )
    elif url not in allowed:
        yield f"{name} is {url}, which is not allowed: add it to {ALLOWED_URLS}"
