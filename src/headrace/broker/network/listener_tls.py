"""Holds what a listener with TLS needs: the context of new handshakes, and the principal of a client's certificate.

The settings are Kafka's ``ssl.*`` names, also with the listener's prefix. On a listener with SASL_SSL, clients log in
by SASL: the broker asks for certificates only if ``ssl.client.auth`` is set with the listener's prefix (KIP-684), and
the principal is that of the login.

Key and trust stores are replaced while the broker runs (``store_reload.py``). Kafka's rules say which stores may
replace others (``security/tls/replacement.py``).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from errno import EACCES
from logging import getLogger
from ssl import SSLContext
from typing import TYPE_CHECKING

from headrace.broker.network.tls_channel import TlsChannel
from headrace.peer_log import one_line
from headrace.security.principal import ANONYMOUS, USER, Principal
from headrace.security.tls import TlsOptions, server_context
from headrace.security.tls.der import DerError
from headrace.security.tls.loaded_stores import LoadedStores
from headrace.security.tls.mapping_rules import MappingRules, NoMatchingRule
from headrace.security.tls.names import certificate_subject
from headrace.security.tls.options import SETTING_NAMES
from headrace.security.tls.replacement import check_mutual_trust, check_replacement

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.listener_config import ListenerConfig
    from headrace.broker.configs.listeners import SecurityProtocol
    from headrace.broker.network.processor import Processor

logger = getLogger(__name__)

#: Stores, and the context of new handshakes with them.
NewStores = tuple[LoadedStores, SSLContext]


@dataclass(slots=True)
class ListenerTls:
    """The TLS of one listener. :meth:`load` makes it."""

    name: str
    protocol: SecurityProtocol
    stores: LoadedStores
    #: A change counts for new connections.
    context: SSLContext
    rules: MappingRules

    @classmethod
    def load(cls, name: str, protocol: SecurityProtocol, config: BrokerConfig) -> ListenerTls:
        """
        :raises ConfigError: if the settings or the stores cannot be used.
        """
        settings = config.of_listener(name)
        options = listener_options(protocol, settings)
        stores = LoadedStores.load(options)
        context = server_context(options, stores)
        if name == config.listeners.inter_broker:
            check_mutual_trust(stores, stores)
        _warn_of_expired(name, stores)
        _warn_of_system_trust(name, stores)
        return cls(name, protocol, stores, context, MappingRules(settings.str("ssl.principal.mapping.rules")))

    def new_stores(self, config: BrokerConfig) -> LoadedStores | None:
        """Reads the stores of other settings; None if these are the present ones, and no file has changed.

        :raises ConfigError: if the stores cannot be read, or may not replace the present ones.
        """
        options = listener_options(self.protocol, config.of_listener(self.name))
        if self.stores.is_current(options):
            return None
        stores = LoadedStores.load(options)
        server_context(options, stores)
        check_replacement(
            self.stores,
            stores,
            allow_dn_changes=config.bool("ssl.allow.dn.changes"),
            allow_san_changes=config.bool("ssl.allow.san.changes"),
        )
        if self.name == config.listeners.inter_broker:
            check_mutual_trust(self.stores, stores)
        return stores

    def read_again(self, config: BrokerConfig) -> NewStores | None:
        """Reads the stores of these settings for new handshakes; None if they are the present ones.

        :raises ConfigError: if the stores cannot be used; the listener then keeps those that it has.
        """
        stores = self.new_stores(config)
        return None if stores is None else (stores, server_context(stores.options, stores))

    def use(self, new: NewStores) -> None:
        """Uses stores for new handshakes."""
        self.stores, self.context = new
        _warn_of_expired(self.name, self.stores)
        _warn_of_system_trust(self.name, self.stores)

    def channel(self, sock: socket.socket, processor: Processor) -> TlsChannel:
        return TlsChannel(sock, self.context, processor, self.principal_of)

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Makes the principal of a client from its certificate (DER).

        :raises PermissionError: if the certificate stands for no user.
        """
        if certificate is None:
            return ANONYMOUS
        try:
            return Principal(USER, self.rules.user_name(certificate_subject(certificate)))
        except (DerError, NoMatchingRule) as error:
            raise PermissionError(EACCES, str(error)) from None


def listener_options(protocol: SecurityProtocol, settings: ListenerConfig) -> TlsOptions:
    """Returns the present ``ssl.*`` settings of a listener."""
    options = TlsOptions.from_settings({name: settings[name] for name in SETTING_NAMES})
    if protocol.has_sasl and settings.name_of("ssl.client.auth") == "ssl.client.auth":
        return replace(options, client_auth="none")
    return options


def _warn_of_expired(name: str, stores: LoadedStores) -> None:
    """Kafka, too, uses such a certificate on a listener for clients. They refuse it, if they check it."""
    for subject in stores.expired(datetime.now(UTC)):
        logger.warning("the certificate %s of listener %s has expired, or is not valid yet", one_line(subject), name)


def _warn_of_system_trust(name: str, stores: LoadedStores) -> None:
    """Java, too, trusts the authorities of the system then: everybody can get a certificate from one of them."""
    client_auth = stores.options.client_auth
    if client_auth != "none" and stores.trusted is None:
        logger.warning(
            "listener %s has ssl.client.auth=%s and no trust store: it accepts every client with a certificate of an "
            "authority that this system trusts. Set ssl.truststore.location or ssl.truststore.certificates",
            name,
            client_auth,
        )
