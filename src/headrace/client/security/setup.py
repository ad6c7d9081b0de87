"""Makes the security of a client's connections from its options: stores are read here, before anything connects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.security.connection_security import PLAINTEXT, ConnectionSecurity

if TYPE_CHECKING:
    from headrace.client.security.options import SecurityOptions
    from headrace.security.tls import TlsOptions


def security_of(options: SecurityOptions) -> ConnectionSecurity:
    """
    :raises ConfigError: if a store cannot be read, or the credentials are missing.
    """
    protocol = options.security_protocol
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    context = credentials = None
    if protocol.endswith("SSL"):
        from headrace.security.tls import client_context

        context = client_context(tls_options(options))
    if protocol.startswith("SASL_"):
        from headrace.client.security.credentials import credentials_of

        credentials = credentials_of(options)
    return ConnectionSecurity(None if context is None else lambda: context, credentials)


def tls_options(options: SecurityOptions) -> TlsOptions:
    """The values of the ``ssl.*`` options."""
    from headrace.security.tls import TlsOptions
    from headrace.security.tls.options import SETTING_NAMES

    names = {name: name.replace(".", "_") for name in SETTING_NAMES}
    return TlsOptions.from_settings({name: getattr(options, field, None) for name, field in names.items()})
