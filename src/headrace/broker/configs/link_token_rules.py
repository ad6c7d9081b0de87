"""Checks where a broker gets the tokens with which it logs in to other brokers by OAUTHBEARER.

=================================================  ==================================================================
``sasl.oauthbearer.token.endpoint.url``            client credentials, or a file with a token; the URL has to be in
                                                   ``org.apache.kafka.sasl.oauthbearer.allowed.urls``
JAAS option ``unsecuredLoginStringClaim_sub``      tokens without a signature, for development only
=================================================  ==================================================================

A broker without a source of tokens, or with two of them, does not start. Kafka uses unsecured tokens by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.broker.configs.oauth_rules import ALLOWED_URLS, allowed_urls
from headrace.properties import ConfigError

if TYPE_CHECKING:
    from headrace.broker.configs.listener_config import ListenerConfig
    from headrace.client.security.options import SecurityOptions
    from headrace.security.sasl.jaas import JaasEntry

_URL = "sasl.oauthbearer.token.endpoint.url"
_HANDLER = "sasl.login.callback.handler.class"
_UNSECURED = "unsecuredLogin"
_UNSECURED_USER = "unsecuredLoginStringClaim_sub"
#: Settings of a broker that are options of a client under the same name.
_OPTIONS = (
    "sasl.jaas.config",
    _URL,
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.header.urlencode",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.login.retry.backoff.max.ms",
)


def link_token_options(settings: ListenerConfig) -> SecurityOptions:
    """Returns the options of this broker as a client of other brokers.

    :param settings: the settings of OAUTHBEARER on the listener of the brokers.
    """
    from headrace.client.security.options import SecurityOptions

    given: dict[str, Any] = {name.replace(".", "_"): settings[name] for name in _OPTIONS}
    options = {name: value for name, value in given.items() if value not in (None, "")}
    return SecurityOptions(org_apache_kafka_sasl_oauthbearer_allowed_urls=tuple(allowed_urls(settings)), **options)


def link_token_problems(
    listener: str, settings: ListenerConfig, entry: JaasEntry | None, line_name: str
) -> Iterator[str]:
    """Yields one line per mistake. The lines show no secrets.

    :param entry: the JAAS line of OAUTHBEARER; None if it is missing.
    :param line_name: the name of the setting with the JAAS line.
    """
    start = f"Brokers log in with OAUTHBEARER on listener {listener}"
    if entry is None:
        yield f"{start}, but {line_name} is missing"
        return
    url, name = settings.optional_str(_URL), settings.name_of(_URL)
    is_unsecured = any(option.startswith(_UNSECURED) for option in entry.options)
    if url and is_unsecured:
        yield f"{start}: there are both {name} and options {_UNSECURED}..., remove one of them"
    elif not url and (_UNSECURED_USER not in entry.options or settings.optional_str(_HANDLER)):
        yield (
            f"{start}, but there is no source of tokens: set {name} to the token endpoint of your provider, and "
            f'{ALLOWED_URLS} to the same URL. For development only: set {_UNSECURED_USER}="NAME" in {line_name}'
        )
    else:
        yield from _option_problems(start, settings)


def _option_problems(start: str, settings: ListenerConfig) -> Iterator[str]:
    from headrace.client.security.oauth_tokens import token_credentials

    try:
        token_credentials(link_token_options(settings))
    except ConfigError as error:
        yield f"{start}: {error}"
