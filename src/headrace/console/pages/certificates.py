"""The page Certificates: the certificates that brokers show on their TLS listeners, and when they expire."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.types import Node
from headrace.console.cluster.certificates import Certificate, Endpoint, read_certificates, tls_endpoints
from headrace.console.pages.page import Page
from headrace.console.pages.part import attempt
from headrace.console.problems import Problem
from headrace.console.request import ConsoleRequest

_KEPT_SECONDS = 60.0
_MOST_ENDPOINTS = 200
_SOON_MS = 30 * 86_400_000
_SETTINGS = ("advertised.listeners", "listeners", "listener.security.protocol.map")


@dataclass(frozen=True)
class CertificateRow:
    """The certificate of a listener.

    :ivar left_ms: how long the certificate is good from now on; negative if it has expired.
    :ivar is_troubled: whether it expires within 30 days, or could not be read.
    """

    certificate: Certificate
    left_ms: int | None
    is_troubled: bool


@dataclass(frozen=True)
class Certificates:
    """The TLS listeners of the brokers.

    :ivar settings_problem: why not all listeners are known; those by which the console connects are.
    """

    certificates: tuple[CertificateRow, ...]
    settings_problem: Problem | None


async def read(request: ConsoleRequest) -> Certificates:
    """The certificates of the brokers' TLS listeners, the one that expires first on top."""
    cluster = request.cluster
    endpoints: list[Endpoint] = []
    problem: Problem | None = None
    for node in (await cluster.cluster()).brokers:
        settings, failed = await attempt(_settings(request, node), {})
        problem = problem or failed
        endpoints += tls_endpoints(node, settings, str(cluster.clients.get("security.protocol", "PLAINTEXT")))
    wanted = tuple(endpoints[:_MOST_ENDPOINTS])
    found = await cluster.kept(("certificates", wanted), _KEPT_SECONDS, lambda: read_certificates(wanted))
    now_ms = request.services.clock.wall_ms()
    rows = [_row(each, now_ms) for each in found]
    rows.sort(key=lambda row: -1 if row.certificate.expires_ms is None else row.certificate.expires_ms)
    return Certificates(tuple(rows), problem)


async def _settings(request: ConsoleRequest, node: Node) -> dict[str, str]:
    entries = await request.cluster.settings("broker", str(node.id))
    return {name: entries[name].value or "" for name in _SETTINGS if name in entries}


def _row(certificate: Certificate, now_ms: int) -> CertificateRow:
    left_ms = None if certificate.expires_ms is None else certificate.expires_ms - now_ms
    return CertificateRow(certificate, left_ms, left_ms is None or left_ms < _SOON_MS)


PAGE = Page("/security/certificates", "Certificates", read, "certificates.html", section="/security")
