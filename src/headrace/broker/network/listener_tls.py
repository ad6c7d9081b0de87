"""What a listener with TLS needs: the context of new handshakes, and the principal of a client's certificate.

The settings are Kafka's ``ssl.*`` names, also with the listener's prefix. On a listener with SASL_SSL, clients log in
by SASL: the broker asks for certificates only if ``ssl.client.auth`` is set with the listener's prefix (KIP-684), and
the principal is that of the login.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from errno import EACCES
from ssl import SSLContext
from typing import TYPE_CHECKING

from headrace.broker.network.tls_channel import TlsChannel
from headrace.security.principal import ANONYMOUS, USER, Principal
from headrace.security.tls import TlsOptions, server_context
from headrace.security.tls.der import DerError
from headrace.security.tls.mapping_rules import MappingRules, NoMatchingRule
from headrace.security.tls.names import certificate_subject
from headrace.security.tls.options import SETTING_NAMES

if TYPE_CHECKING:
    from headrace.broker.configs.listener_config import ListenerConfig
    from headrace.broker.configs.listeners import SecurityProtocol
    from headrace.broker.network.processor import Processor


@dataclass(slots=True)
class ListenerTls:
    #: A change counts for new connections.
    context: SSLContext
    rules: MappingRules

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


def load_listener_tls(protocol: SecurityProtocol, settings: ListenerConfig) -> ListenerTls:
    """
    :raises ConfigError: if the settings or the stores cannot be used.
    """
    return ListenerTls(
        server_context(listener_options(protocol, settings)), MappingRules(settings.str("ssl.principal.mapping.rules"))
    )


def listener_options(protocol: SecurityProtocol, settings: ListenerConfig) -> TlsOptions:
    """Returns the present ``ssl.*`` settings of a listener."""
    options = TlsOptions.from_settings({name: settings[name] for name in SETTING_NAMES})
    if protocol.has_sasl and settings.name_of("ssl.client.auth") == "ssl.client.auth":
        return replace(options, client_auth="none")
    return options
