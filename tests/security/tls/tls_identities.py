"""Certificates for the tests of TLS, made by trustme, and the settings that use them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificate

from headrace.security.tls import TlsOptions


@dataclass(frozen=True)
class Identity:
    """A key, its chain and the authority that has signed it, all as PEM text."""

    key: str
    chain: str
    authority: str

    @property
    def private_key(self):
        return load_pem_private_key(self.key.encode(), None)

    @property
    def certificate(self):
        return load_pem_x509_certificate(self.chain.encode())

    @property
    def authority_certificate(self):
        return load_pem_x509_certificate(self.authority.encode())

    def encrypted_key(self, password: str) -> str:
        encryption = BestAvailableEncryption(password.encode())
        return self.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def traditional_key(self) -> str:
        return self.private_key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()

    def settings(self, **others: object) -> dict[str, object]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self.key,
            "ssl.keystore.certificate.chain": self.chain,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.authority,
            **others,
        }

    def options(self, others: dict[str, object] | None = None) -> TlsOptions:
        return TlsOptions.from_settings(self.settings(**(others or {})))


@cache
def authority(name: str = "one") -> trustme.CA:
    return trustme.CA(organization_name=name)


@cache
def identity(
    host: str = "localhost", authority_name: str = "one", key_type: trustme.KeyType = trustme.KeyType.ECDSA
) -> Identity:
    ca = authority(authority_name)
    made = ca.issue_cert(host, "127.0.0.1", key_type=key_type)
    # trustme writes keys in OpenSSL's own form, Kafka wants PKCS8
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    return Identity(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "".join(blob.bytes().decode() for blob in made.cert_chain_pems),
        ca.cert_pem.bytes().decode(),
    )
