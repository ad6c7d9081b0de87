"""Certificates of brokers and clients for tests, made by trustme, as PEM files and as options."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key


@dataclass(frozen=True)
class Certificate:
    """A key in PKCS 8, its chain, and the certificate of its issuer, as PEM text."""

    key: str
    chain: str
    issuer: str

    def key_store(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self.key,
            "ssl.keystore.certificate.chain": self.chain,
        }

    def trust_store(self) -> dict[str, str]:
        """The options of a side that trusts this certificate."""
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.issuer}

    def write(self, folder: Path, name: str = "server") -> dict[str, str]:
        """Writes the stores as files.

        :returns: the options of a side that has this certificate, and trusts its issuer.
        """
        keys, trusted = folder / f"{name}.pem", folder / f"{name}-issuer.pem"
        keys.write_text(self.key + self.chain)
        trusted.write_text(self.issuer)
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keys),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
        }


@cache
def certificate(*hosts: str, issuer: str = "one", name: str | None = None, expired: bool = False) -> Certificate:
    """
    :param hosts: localhost and 127.0.0.1, if none are given.
    :param name: the common name.
    """
    authority = _authority(issuer)
    made = authority.issue_cert(
        *(hosts or ("localhost", "127.0.0.1")),
        common_name=name,
        not_after=datetime(2020, 1, 2, tzinfo=UTC) if expired else None,
        not_before=datetime(2020, 1, 1, tzinfo=UTC) if expired else None,
        key_type=trustme.KeyType.ECDSA,
    )
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    return Certificate(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "".join(one.bytes().decode() for one in made.cert_chain_pems),
        authority.cert_pem.bytes().decode(),
    )


@cache
def _authority(name: str) -> trustme.CA:
    return trustme.CA(organization_name=name)
