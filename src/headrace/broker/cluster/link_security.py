"""Connects this broker to other brokers: by the protocol of the listener that brokers use among themselves.

TLS: the listener's own key store is the client's certificate, and its trust store decides whom to trust, as in Kafka.
SASL: the broker logs in by ``sasl.mechanism.inter.broker.protocol``, with username and password of the mechanism's JAAS
line, or with a token (``configs/link_token_rules.py``). All connections share a token, and its successor.

Settings are read for each new connection, so a change at run time counts for new connections. Stores are read again if
a setting or the file has changed. If the new store cannot be read, the broker logs that and keeps the last one.
"""

from __future__ import annotations

import os
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.configs.sasl_rules import link_mechanism
from headrace.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from headrace.client.security.credentials import jaas_credentials
from headrace.properties import ConfigError
from headrace.security.sasl.mechanism import OAUTHBEARER

if TYPE_CHECKING:
    from ssl import SSLContext

    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.listener_config import ListenerConfig
    from headrace.client.security.connection_security import Credentials
    from headrace.client.security.options import SecurityOptions
    from headrace.security.sasl.mechanism import ClientMechanism
    from headrace.security.tls import TlsOptions

logger = getLogger(__name__)

#: A store's file as it was when it was read: time of change and size.
_Stamp = tuple[int, int] | None


def link_security(config: BrokerConfig) -> ConnectionSecurity:
    """Makes the security of connections to other brokers.

    :raises ConfigError: if a store cannot be read, or the credentials are missing.
    """
    name = config.listeners.inter_broker
    protocol = next(one.protocol for one in config.listeners.bound if one.name == name)
    if not protocol.has_tls and not protocol.has_sasl:
        return PLAINTEXT
    tls = _LinkTls(config, name) if protocol.has_tls else None
    credentials = _LinkCredentials(config, name) if protocol.has_sasl else None
    if tls is not None:
        tls.load()
    if credentials is not None:
        credentials.check()
    return ConnectionSecurity(None if tls is None else tls.context, credentials)


class _LinkTls:
    """The TLS context of connections to other brokers."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._settings = config.of_listener(listener)
        self._loaded: tuple[TlsOptions, list[_Stamp]] | None = None
        self._context: SSLContext

    def context(self) -> SSLContext:
        try:
            self.load()
        except ConfigError as error:
            logger.error("the stores for connections to other brokers cannot be read again: %s", error)
        return self._context

    def load(self) -> None:
        """
        :raises ConfigError: if a store cannot be read.
        """
        from headrace.security.tls import TlsOptions, client_context
        from headrace.security.tls.options import SETTING_NAMES

        options = TlsOptions.from_settings({name: self._settings[name] for name in SETTING_NAMES})
        stamps = [_stamp(path) for path in (options.keystore_location, options.truststore_location)]
        if self._loaded != (options, stamps):
            self._context = client_context(options)
            self._loaded = (options, stamps)


def _stamp(path: str | None) -> _Stamp:
    try:
        found = None if path is None else os.stat(path)
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size)


class _LinkCredentials:
    """What this broker logs in with at other brokers."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self._listener = listener
        self.mechanism = link_mechanism(config.of_listener(listener))
        self._token_options: SecurityOptions | None = None
        self._credentials: Credentials

    def check(self) -> None:
        """
        :raises ConfigError: if there are no credentials.
        """
        settings = self._config.of_listener(self._listener, self.mechanism)
        name = settings.name_of("sasl.jaas.config")
        line = settings.optional_str("sasl.jaas.config")
        if line is None:
            raise ConfigError(f"{name} is missing, which brokers need to log in to each other")
        if self.mechanism == OAUTHBEARER:
            self._use_tokens(settings)
        else:
            self._credentials = jaas_credentials(line, self.mechanism, name)

    def _use_tokens(self, settings: ListenerConfig) -> None:
        """Keeps the present credentials, and with them their token, unless a setting has changed."""
        from headrace.broker.configs.link_token_rules import link_token_options  # few brokers have OAUTHBEARER
        from headrace.client.security.oauth_tokens import token_credentials

        options = link_token_options(settings)
        if options != self._token_options:
            self._credentials, self._token_options = token_credentials(options), options

    async def begin(self) -> ClientMechanism:
        self.check()
        return await self._credentials.begin()
