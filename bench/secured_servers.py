"""Starts both brokers with TLS and SASL listeners, and says how a client connects to each of them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import servers
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from headrace.testing.ports import free_port

TLS, MUTUAL, SCRAM = "SSL", "MUTUAL", "SASL_PLAINTEXT"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True)
class Certificates:
    """Files in PEM: the authority, and key with chain of broker and client."""

    authority: Path
    broker: Path
    client: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        authority = trustme.CA(key_type=trustme.KeyType.RSA)
        made = cls(folder / "authority.pem", folder / "broker.pem", folder / "client.pem")
        authority.cert_pem.write_to_path(made.authority)
        for name, path in (("127.0.0.1", made.broker), ("client", made.client)):
            issued = authority.issue_cert(name, common_name=name, key_type=trustme.KeyType.RSA)
            chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
            path.write_bytes(_as_pkcs8(issued.private_key_pem.bytes()) + chain)
        return made


def _as_pkcs8(key: bytes) -> bytes:
    """The only form of keys that Apache Kafka reads."""
    loaded = load_pem_private_key(key, None)
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True)
class Secured:
    """A broker, and the ports of its secured listeners."""

    server: servers.Server
    ports: Mapping[str, int]
    certificates: Certificates

    @property
    def cpu_seconds(self) -> float:
        return self.server.cpu_seconds

    def over(self, listener: str) -> servers.Server:
        """The broker as a client of librdkafka sees it at a listener."""
        settings = {"security.protocol": "SSL", "ssl.ca.location": str(self.certificates.authority)}
        if listener == MUTUAL:
            settings["ssl.keystore.location"] = str(self.certificates.client)
        return replace(self.server, port=self.ports[listener], client_settings=settings)

    def context(self, listener: str) -> ssl.SSLContext:
        """The context of a bare client. It checks nothing, because the client's time is not to be measured."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if listener == MUTUAL:
            context.load_cert_chain(self.certificates.client)
        return context

    def java_settings(self, folder: Path) -> Path:
        """A file with the settings of Java's clients for the listener without certificates of clients."""
        path = folder / "client.properties"
        path.write_text(
            f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={self.certificates.authority}\n"
        )
        return path


@contextmanager
def running_brokers(folder: Path) -> Iterator[dict[str, Secured]]:
    certificates = Certificates.make(folder)
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        f"listener.name.{SCRAM.lower()}.scram-sha-256.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
    }
    with ExitStack() as stack:
        sides: dict[str, Secured] = {}
        for side, start in (("apache", servers.apache), ("headrace", servers.headrace)):
            ports = {listener: free_port() for listener in (TLS, MUTUAL, SCRAM)}
            server = stack.enter_context(start(folder / side, settings, listeners=ports))
            sides[side] = Secured(server, ports, certificates)
        yield sides
