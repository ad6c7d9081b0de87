"""Reads the certificates that brokers show on their TLS listeners, to tell when they expire.

The console connects to each listener that a broker advertises with a security protocol that has TLS, takes the
certificate of the handshake, and closes. The certificate is not checked, because one that has expired is to be shown
too; nothing is sent on the connection. A listener that wants a certificate of the client still shows its own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.client.types import Node
from headrace.security.tls.der import DerError, read_element
from headrace.security.tls.names import certificate_subject, java_name

_LONGEST_SECONDS = 3.0
_SEQUENCE = 0x30
_VERSION = 0xA0
#: The formats of a time in a certificate, by its tag: UTCTime and GeneralizedTime.
_TIMES = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_ANY_HOST = ("", "0.0.0.0", "::")


@dataclass(frozen=True)
class Endpoint:
    """A TLS listener of a broker."""

    broker_id: int
    listener: str
    host: str
    port: int


@dataclass(frozen=True)
class Certificate:
    """The certificate of a TLS listener. The times are None if there was none.

    :ivar problem: why there is no certificate.
    """

    endpoint: Endpoint
    subject: str
    issuer: str
    begins_ms: int | None
    expires_ms: int | None
    problem: str


def tls_endpoints(node: Node, settings: Mapping[str, str], connected_by: str) -> list[Endpoint]:
    """The TLS listeners of a broker.

    :param settings: the settings of the broker; empty if the user may not see them.
    :param connected_by: the security protocol by which the console itself reaches the broker.
    """
    listeners = settings.get("advertised.listeners") or settings.get("listeners") or ""
    pairs = (
        pair.split(":", 1) for pair in settings.get("listener.security.protocol.map", "").split(",") if ":" in pair
    )
    protocols = {name.strip().upper(): protocol.strip().upper() for name, protocol in pairs}
    found: dict[tuple[str, int], Endpoint] = {}
    if connected_by.endswith("SSL"):
        found[node.host, node.port] = Endpoint(node.id, "", node.host, node.port)
    for text in filter(None, map(str.strip, listeners.split(","))):
        name, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        if protocols.get(name.upper(), name.upper()).endswith("SSL") and port.isdecimal() and int(port):
            host = node.host if host in _ANY_HOST else host
            found[host, int(port)] = Endpoint(node.id, name, host, int(port))
    return list(found.values())


async def read_certificates(endpoints: Iterable[Endpoint]) -> tuple[Certificate, ...]:
    """The certificates of listeners, all read at once."""
    return tuple(await asyncio.gather(*map(_read, endpoints)))


async def _read(endpoint: Endpoint) -> Certificate:
    try:
        async with asyncio.timeout(_LONGEST_SECONDS):
            shown = await _shown_by(endpoint.host, endpoint.port)
        subject, issuer, begins_ms, expires_ms = certificate_facts(shown)
    except TimeoutError:
        return Certificate(endpoint, "", "", None, None, f"there was no handshake within {_LONGEST_SECONDS:.0f} s")
    except (OSError, DerError, ValueError) as error:
        return Certificate(endpoint, "", "", None, None, str(error)[:300] or type(error).__name__)
    return Certificate(endpoint, subject, issuer, begins_ms, expires_ms, "")


async def _shown_by(host: str, port: int) -> bytes:
    """The certificate that a server shows (DER)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    try:
        found: ssl.SSLObject = writer.get_extra_info("ssl_object")
        return found.getpeercert(binary_form=True) or b""
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def certificate_facts(certificate: bytes) -> tuple[str, str, int, int]:
    """The subject, the issuer, and the times between which a certificate is good.

    :param certificate: in DER.
    :raises ValueError: if the bytes are no certificate.
    """
    parts = list(read_element(certificate).expect(_SEQUENCE).elements())
    fields = list(parts[0].expect(_SEQUENCE).elements()) if parts else []
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 5:
        raise ValueError("not a certificate")
    # serial number, algorithm, issuer, validity, subject
    begins, expires = list(fields[3].expect(_SEQUENCE).elements())[:2]
    return (
        certificate_subject(certificate),
        java_name(fields[2].encoded),
        _time_ms(begins.tag, begins.content),
        _time_ms(expires.tag, expires.content),
    )


def _time_ms(tag: int, content: bytes) -> int:
    if tag not in _TIMES:
        raise ValueError("a time of the certificate cannot be read")
    return round(datetime.strptime(content.decode("ascii"), _TIMES[tag]).replace(tzinfo=UTC).timestamp() * 1_000)
