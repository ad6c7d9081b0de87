"""Reads PKCS12 stores, by ``cryptography``.

``cryptography`` returns one private key, the certificate that belongs to it, and all other certificates without their
attributes. Java marks trusted certificates by an attribute. What ``cryptography`` does return is enough to tell them
from the certificates of a chain: Java names a trusted certificate, and the own certificate of a key, by its alias, and
the other certificates of a chain by their subjects. A store of OpenSSL names only the own certificate.

In a store without a private key, every certificate is trusted. Java demands its attribute there as well, and finds
nothing in a trust store that OpenSSL has written. If a store has several keys, the first one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.security.tls.names import certificate_subject

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate
    from cryptography.x509 import Certificate


class Pkcs12Error(ValueError):
    """The store cannot be read. The message is a part of a sentence and holds no secret."""


class Pkcs12Contents:
    """The private key (PKCS8) of a store with its chain, if there is one, and the trusted certificates."""

    def __init__(self, key: bytes | None, chain: tuple[bytes, ...], trusted: tuple[bytes, ...]) -> None:
        self.key = key
        self.chain = chain
        self.trusted = trusted


def read_pkcs12(data: bytes, password: str | None) -> Pkcs12Contents:
    """Returns the entries of a store.

    :raises Pkcs12Error: if the password is wrong, or the bytes are not a store.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        store = load_pkcs12(data, None if password is None else password.encode())
    except UnsupportedAlgorithm as error:
        raise Pkcs12Error(f"it uses an algorithm that is not supported ({error})") from None
    except (ValueError, TypeError):
        wrong = "it needs a password" if password is None else "its password is wrong"
        raise Pkcs12Error(f"{wrong}, or it is neither a PKCS12 nor a JKS store") from None
    others = store.additional_certs
    if store.key is None:
        alone = [] if store.cert is None else [store.cert]
        return Pkcs12Contents(None, (), tuple(_der(one.certificate) for one in (*alone, *others)))
    key = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    trusted = tuple(_der(one.certificate) for one in others if _has_alias(one))
    if store.cert is None:
        return Pkcs12Contents(key, (), trusted)
    return Pkcs12Contents(key, _chain(store.cert.certificate, [one.certificate for one in others]), trusted)


def _der(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)


def _has_alias(one: PKCS12Certificate) -> bool:
    name = (one.friendly_name or b"").decode("utf-8", "replace")
    return bool(name) and name.lower() != certificate_subject(_der(one.certificate)).lower()


def _chain(own: Certificate, others: list[Certificate]) -> tuple[bytes, ...]:
    """Returns the own certificate, then its issuer, and so on. The store has them in any order."""
    chain = [own]
    while chain[-1].issuer != chain[-1].subject and len(chain) <= len(others):
        issuer = next((other for other in others if other.subject == chain[-1].issuer), None)
        if issuer is None or issuer in chain:
            break
        chain.append(issuer)
    return tuple(_der(certificate) for certificate in chain)
