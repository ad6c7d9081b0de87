"""Connects this broker to other brokers: by the protocol of the listener that brokers use among themselves.

TLS: the listener's own key store is the client's certificate, and its trust store decides whom to trust, as in Kafka.
SASL: the broker logs in by ``sasl.mechanism.inter.broker.protocol``, with username and password of the mechanism's JAAS
line, or with a token (``configs/link_token_rules.py``). All connections share a token, and its successor.

Credentials are read for each new connection, so a change at run time counts for new connections. Stores are read again
when a client has sent settings of this broker, as for the listener itself (``store_reload.py``).
"""

from __future__ import annotations

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
    from headrace.broker.thread_pool import RunBlocking
    from headrace.client.security.connection_security import Credentials
    from headrace.client.security.options import SecurityOptions
    from headrace.security.sasl.mechanism import ClientMechanism
    from headrace.security.tls.loaded_stores import LoadedStores


def link_security(config: BrokerConfig, run_blocking: RunBlocking) -> ConnectionSecurity:
    """Makes the security of connections to other brokers.

    :raises ConfigError: if a store cannot be read, or the credentials are missing.
    """
    name = config.listeners.inter_broker
    protocol = next(one.protocol for one in config.listeners.bound if one.name == name)
    if not protocol.has_tls and not protocol.has_sasl:
        return PLAINTEXT
    tls = _LinkTls(config, name) if protocol.has_tls else None
    credentials = _LinkCredentials(config, name) if protocol.has_sasl else None
    if credentials is not None:
        credentials.check()
    if tls is None:
        return ConnectionSecurity(None, credentials)
    from headrace.broker.store_reload import StoreReload

    StoreReload(config, run_blocking, "the client of other brokers", read=tls.read_again, use=tls.use)
    return ConnectionSecurity(tls.context, credentials)


class _LinkTls:
    """The TLS context of connections to other brokers."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        """
        :raises ConfigError: if a store cannot be read.
        """
        self._listener = listener
        self._stores: LoadedStores | None = None
        self._context: SSLContext
        read = self.read_again(config)
        assert read is not None
        self.use(read)

    def context(self) -> SSLContext:
        return self._context

    def read_again(self, config: BrokerConfig) -> tuple[LoadedStores, SSLContext] | None:
        """Reads the stores of these settings; None if they are the present ones.

        :raises ConfigError: if a store cannot be read.
        """
        from headrace.security.tls import TlsOptions, client_context
        from headrace.security.tls.loaded_stores import LoadedStores
        from headrace.security.tls.options import SETTING_NAMES

        settings = config.of_listener(self._listener)
        options = TlsOptions.from_settings({name: settings[name] for name in SETTING_NAMES})
        if self._stores is not None and self._stores.is_current(options):
            return None
        stores = LoadedStores.load(options)
        return stores, client_context(options, stores)

    def use(self, read: tuple[LoadedStores, SSLContext]) -> None:
        """Uses stores for new connections."""
        self._stores, self._context = read


class _LinkCredentials:
    """The credentials with which this broker logs in to other brokers."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self._listener = listener
        self._token_options: SecurityOptions | None = None
        self._credentials: Credentials

    @property
    def mechanism(self) -> str:
        return link_mechanism(self._config.of_listener(self._listener))

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
            self._credentials, self._token_options = jaas_credentials(line, self.mechanism, name), None

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
