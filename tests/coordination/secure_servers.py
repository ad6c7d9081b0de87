"""Servers of ZooKeeper's protocol with TLS: ours and a real one, with certificates that are made for the test."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.ports import free_port
from headrace.testing.zookeeper_process import ZookeeperProcess


class Certificates:
    """PEM files: ``server``, ``client``, ``other``, ``stranger`` (of another authority), and the authority ``ca``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        authority, other = trustme.CA(), trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        other.cert_pem.write_to_path(folder / "other-ca.pem")
        for name, issuer, host in (
            ("server", authority, "127.0.0.1"),
            ("client", authority, "broker.example"),
            ("other", authority, "other.example"),
            ("stranger", other, "broker.example"),
        ):
            issued = issuer.issue_cert(host, common_name=name, organization_name="Acme, Ltd")
            key = load_pem_private_key(issued.private_key_pem.bytes(), None)
            parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
            parts += [blob.bytes() for blob in issued.cert_chain_pems]
            (folder / f"{name}.pem").write_bytes(b"".join(parts))

    def path(self, name: str) -> str:
        return str(self._folder / f"{name}.pem")

    @property
    def server_settings(self) -> dict[str, str]:
        """The settings of ``zoo.cfg``."""
        return {
            "ssl.keyStore.location": self.path("server"),
            "ssl.trustStore.location": self.path("ca"),
            "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        }

    def client_settings(self, name: str | None = "client", **others: object) -> dict[str, object]:
        """The settings of a broker."""
        return {
            "zookeeper.ssl.client.enable": True,
            "zookeeper.ssl.truststore.location": self.path("ca"),
            # ZooKeeper accepts only TLS 1.3 by default, and Kafka's default is TLS 1.2.
            "zookeeper.ssl.protocol": "TLSv1.3",
            **({} if name is None else {"zookeeper.ssl.keystore.location": self.path(name)}),
            **{f"zookeeper.ssl.{key.replace('_', '.')}": value for key, value in others.items()},
        }


@contextmanager
def our_server(folder: Path, certificates: Certificates):
    """Yields the secure address."""
    options = [word for item in certificates.server_settings.items() for word in ("-o", "=".join(item))]
    arguments = ("--secure-listen", "127.0.0.1:0", *options)
    with BrokerProcess(folder, *arguments, command="zookeeper", listen=None) as server:
        yield server.address


@contextmanager
def real_server(folder: Path, certificates: Certificates):
    port = free_port()
    settings = {
        **certificates.server_settings,
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
    }
    with ZookeeperProcess(folder, settings=settings):
        yield f"127.0.0.1:{port}"
