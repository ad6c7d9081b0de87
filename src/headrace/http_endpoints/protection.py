"""Decides whether an HTTP endpoint may be served at an address, and holds how it is protected: TLS and credentials.

Only this host reaches a loopback address, so that such an endpoint needs no protection. On every other address an
endpoint needs TLS and a secret. A secret without TLS is readable on its way, and TLS without a secret lets everybody
read. Who wants that must say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.http_endpoints.access import Access
from headrace.properties import ConfigError
from headrace.security.file_stamps import Stamp, stamp_of
from headrace.security.ip_addresses import is_loopback as is_loopback

if TYPE_CHECKING:
    from ssl import SSLContext, SSLObject

logger = getLogger(__name__)


@dataclass(frozen=True)
class Protection:
    """
    :param certificate: a PEM file with the certificate chain; empty: no TLS.
    :param key: a PEM file with the key; empty if it is in the certificate's file.
    :param allows_insecure: whether an address that other hosts reach may be served without TLS or without a secret.
    """

    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    access: Access = field(default_factory=Access)
    allows_insecure: bool = False

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"

    def check_address(self, host: str, hints: str) -> None:
        """
        :param host: the numerical address that will be bound.
        :param hints: how a user gives TLS and a secret, or allows an insecure endpoint.
        :raises ConfigError: if the address may not be served without more protection.
        """
        missing = [
            name for name, given in (("TLS", self.certificate), ("password", self.access.is_required)) if not given
        ]
        if missing and not self.allows_insecure and not is_loopback(host):
            raise ConfigError(
                f"other hosts can reach {host or 'all addresses'}, and there is no {' and no '.join(missing)}; {hints}"
            )

    def tls_context(self) -> SSLContext | None:
        """The context for TLS 1.2 and 1.3; None without TLS. New connections get a certificate that was renewed.

        :raises ConfigError: if the files cannot be used.
        """
        if not self.certificate:
            if self.key:
                raise ConfigError("a TLS key needs a certificate")
            return None
        context = self._load()
        context.sni_callback = _RenewedCertificate(context, self._load, [self.certificate, self.key])
        return context

    def _load(self) -> SSLContext:
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # A password that is always given prevents OpenSSL from asking for one at the terminal.
            context.load_cert_chain(self.certificate, self.key or None, password=self.key_password)
        except ssl.SSLError as error:
            reason = (error.reason or "not a PEM file").replace("_", " ").lower()
            raise ConfigError(f"cannot use the certificate {self.certificate} and its key: {reason}") from None
        except OSError as error:
            files = " and ".join(filter(None, (self.certificate, self.key)))
            raise ConfigError(f"cannot read {files}: {error.strerror}") from None
        return context


class _RenewedCertificate:
    """OpenSSL calls it in every handshake. It reads the files again if they have changed.

    If the new files cannot be used, the old certificate stays in use, until the files change again.
    """

    def __init__(self, context: SSLContext, load: Callable[[], SSLContext], files: list[str]) -> None:
        self._current = context
        self._load = load
        self._files = [file for file in files if file]
        self._stamps = self._read_stamps()

    def __call__(self, connection: SSLObject, _server_name: str | None, _context: SSLContext) -> None:
        stamps = self._read_stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._current = self._load()
                logger.info("the renewed certificate %s is in use", self._files[0])
            except ConfigError as error:
                logger.error("the renewed certificate is not used: %s", error)
        connection.context = self._current

    def _read_stamps(self) -> list[Stamp]:
        return [stamp_of(file) for file in self._files]


def numerical_address(host: str, port: int) -> str:
    """The address that a server binds for a name.

    :raises ConfigError: if the name is unknown.
    """
    import socket

    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"{host} is not an address of this host: {error.strerror or error}") from None
    return str(found[0][4][0])
