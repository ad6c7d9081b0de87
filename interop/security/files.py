# ruff: noqa: T201  what it prints is for interop/security.sh
"""Makes what the part `security` of script/interop needs: certificates, stores, the broker's settings, the endpoints.

    python interop/security/files.py FOLDER [apache]

The broker has five listeners: TLS with a PEM, a PKCS12 and a JKS key store, SASL without TLS, SASL with TLS. An
endpoint is a listener with a way to log in; ``endpoints.json`` lists them for the Go and Node programs, and each has
a ``NAME.properties`` for Java. The certificate of the client has the subject ``CN=carol, O=Acme, C=DE`` in this
order, which Java writes as ``C=DE,O=Acme,CN=carol``.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace.testing.ports import free_port

PASSWORD = "store-secret"
ALICE, ALICE_PASSWORD = "alice", "alice-secret"
ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
CAROL = "User:C=DE,O=Acme,CN=carol"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_MODULE = "org.apache.kafka.common.security"
#: Tokens without a signature. Apache Kafka accepts them by default, Headrace if the line says how to validate them.
_OAUTH_SERVER = (
    f'{_MODULE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{ADMIN}" '
    'unsecuredValidatorAllowableClockSkewMs="3000";'
)
_LISTENERS = {"PEM": "SSL", "P12": "SSL", "JKS": "SSL", "SASLPLAIN": "SASL_PLAINTEXT", "SASLSSL": "SASL_SSL"}


class Certificates:
    """A certificate authority and what it signs, in all kinds of stores."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject([(NameOID.COMMON_NAME, "The CA of the interop tests")])
        self._authority = self._signed(self._name, self._key, is_authority=True)
        (folder / "ca.pem").write_bytes(_pem(self._authority))
        self._make_trust_stores()

    def issue(self, name: str, subject: list[tuple[x509.ObjectIdentifier, str]]) -> None:
        """``NAME.key``, ``NAME.crt``, ``NAME.pem`` (both), ``NAME.p12`` and ``NAME.jks``."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(_subject(subject), key)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain = _pem(certificate) + _pem(self._authority)
        store = pkcs12.serialize_key_and_certificates(
            name.encode(),
            key,
            certificate,
            [self._authority],
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
        for ending, content in (("key", private), ("crt", chain), ("pem", private + chain), ("p12", store)):
            (self._folder / f"{name}.{ending}").write_bytes(content)
        self._keytool(
            "-importkeystore", "-srckeystore", f"{name}.p12", "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD,
            "-destkeystore", f"{name}.jks", "-deststoretype", "JKS", "-deststorepass", PASSWORD,
        )  # fmt: skip

    def _make_trust_stores(self) -> None:
        for ending, kind in (("p12", "PKCS12"), ("jks", "JKS")):
            self._keytool(
                "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", "-keystore", f"trust.{ending}",
                "-storetype", kind, "-storepass", PASSWORD,
            )  # fmt: skip

    def _keytool(self, *arguments: str) -> None:
        subprocess.run(["keytool", *arguments], cwd=self._folder, check=True, capture_output=True, timeout=60)

    def _signed(self, subject: x509.Name, key: Any, *, is_authority: bool = False) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not is_authority:
            names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _subject(parts: list[tuple[x509.ObjectIdentifier, str]]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_store(folder: Path, prefix: str, ending: str) -> dict[str, str]:
    kind = {"pem": "PEM", "p12": "PKCS12", "jks": "JKS"}[ending]
    trust = folder / ("ca.pem" if ending == "pem" else f"trust.{ending}")
    settings = {
        f"{prefix}ssl.keystore.type": kind,
        f"{prefix}ssl.keystore.location": str(folder / f"server.{ending}"),
        f"{prefix}ssl.truststore.type": kind,
        f"{prefix}ssl.truststore.location": str(trust),
    }
    if ending != "pem":
        names = ("keystore.password", "key.password", "truststore.password")
        settings.update({f"{prefix}ssl.{name}": PASSWORD for name in names})
    return settings


def server_settings(folder: Path, ports: dict[str, int]) -> dict[str, str]:
    users = f'user_{ADMIN}="{ADMIN_PASSWORD}" user_{ALICE}="{ALICE_PASSWORD}"'
    plain = f'{_MODULE}.plain.PlainLoginModule required username="{ADMIN}" password="{ADMIN_PASSWORD}" {users};'
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in _LISTENERS.items()),
        "inter.broker.listener.name": "SASLPLAIN",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "super.users": f"User:{ADMIN}",
        "delegation.token.secret.key": "token-secret",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "listener.name.pem.ssl.client.auth": "requested",
    }
    for name, ending in (("pem", "pem"), ("p12", "p12"), ("jks", "jks"), ("saslssl", "p12")):
        settings.update(_key_store(folder, f"listener.name.{name}.", ending))
    for name in ("saslplain", "saslssl"):
        prefix = f"listener.name.{name}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = plain
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{_MODULE}.scram.ScramLoginModule required;"
        settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = _OAUTH_SERVER
    return settings


def apache_settings(folder: Path, settings: dict[str, str]) -> dict[str, str]:
    """The same for Apache Kafka, to try the clients' programs on it."""
    controller = free_port()
    return {
        **settings,
        "listeners": f"{settings['listeners']},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": settings["listeners"],
        "listener.security.protocol.map": settings["listener.security.protocol.map"] + ",CONTROLLER:SASL_PLAINTEXT",
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": settings["listener.name.saslplain.plain.sasl.jaas.config"],
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "log.dirs": str(folder / "apache-data"),
    }


def endpoints(folder: Path, ports: dict[str, int]) -> list[dict[str, Any]]:
    def endpoint(name: str, listener: str, **more: Any) -> dict[str, Any]:
        tls = {"ca": str(folder / "ca.pem")} if "SSL" in _LISTENERS[listener] else {}
        address = f"127.0.0.1:{ports[listener]}"
        return {"name": name, "address": address, "protocol": _LISTENERS[listener], "topics": "secure-", **tls, **more}

    certificate = {"certificate": str(folder / "client.crt"), "key": str(folder / "client.key")}
    found = [endpoint(f"ssl-{name.lower()}", name, topics="open-") for name in ("PEM", "P12", "JKS")]
    found.append(endpoint("ssl-certificate", "PEM", **certificate))
    for listener, label in (("SASLPLAIN", "sasl_plaintext"), ("SASLSSL", "sasl_ssl")):
        for mechanism in MECHANISMS:
            login = {"mechanism": mechanism, "user": ALICE, "password": ALICE_PASSWORD}
            if mechanism == "OAUTHBEARER":
                login = {"mechanism": mechanism, "user": ALICE, "token": unsecured_token(ALICE)}
            found.append(endpoint(f"{label}-{mechanism.lower()}", listener, **login))
    return found


def unsecured_token(subject: str) -> str:
    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': subject, 'iat': now, 'exp': now + 3600})}."


def client_settings(folder: Path, endpoint: dict[str, Any]) -> dict[str, str]:
    """For Java. Trust stores are PEM, PKCS12 or JKS, as the listener's key store."""
    settings = {"bootstrap.servers": endpoint["address"], "security.protocol": endpoint["protocol"]}
    if "ca" in endpoint:
        kind = {"ssl-p12": ("PKCS12", "trust.p12"), "ssl-jks": ("JKS", "trust.jks")}.get(
            endpoint["name"], ("PEM", "ca.pem")
        )
        settings.update({"ssl.truststore.type": kind[0], "ssl.truststore.location": str(folder / kind[1])})
        if kind[0] != "PEM":
            settings["ssl.truststore.password"] = PASSWORD
    if "certificate" in endpoint:
        settings.update({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(folder / "client.p12")})
        settings.update({"ssl.keystore.password": PASSWORD, "ssl.key.password": PASSWORD})
    if "mechanism" in endpoint:
        settings["sasl.mechanism"] = endpoint["mechanism"]
        settings["sasl.jaas.config"] = _client_jaas(
            endpoint["mechanism"], endpoint.get("user"), endpoint.get("password")
        )
    return settings


def _client_jaas(mechanism: str, user: str | None, password: str | None) -> str:
    if mechanism == "OAUTHBEARER":
        return f'{_MODULE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return f'{_MODULE}.{module} required username="{user}" password="{password}";'


def write(path: Path, settings: dict[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def main(folder: Path, is_apache: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    certificates = Certificates(folder)
    for name in ("server", "renewed"):
        certificates.issue(name, [(NameOID.COMMON_NAME, "localhost")])
    carol = [(NameOID.COMMON_NAME, "carol"), (NameOID.ORGANIZATION_NAME, "Acme"), (NameOID.COUNTRY_NAME, "DE")]
    certificates.issue("client", carol)
    ports = {name: free_port() for name in _LISTENERS}
    settings = server_settings(folder, ports)
    if is_apache:
        settings = apache_settings(folder, settings)
    else:
        settings["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
    write(folder / "server.properties", settings)
    found = endpoints(folder, ports)
    (folder / "endpoints.json").write_text(json.dumps(found, indent=1))
    for endpoint in found:
        write(folder / f"{endpoint['name']}.properties", client_settings(folder, endpoint))
    admin = {"name": "admin", "address": f"127.0.0.1:{ports['SASLPLAIN']}", "protocol": "SASL_PLAINTEXT"}
    admin.update({"mechanism": "PLAIN", "user": ADMIN, "password": ADMIN_PASSWORD})
    write(folder / "admin.properties", client_settings(folder, admin))
    print(admin["address"])


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), "apache" in sys.argv[2:])
