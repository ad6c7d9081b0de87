"""Reads PKCS12 stores, by ``cryptography``, and by ``pkcs12_bags.py`` what ``cryptography`` cannot read.

``cryptography`` returns one private key, the certificate that belongs to it, and all other certificates without their
attributes. Java marks trusted certificates by an attribute. What ``cryptography`` does return is enough to tell them
from the certificates of a chain: Java names a trusted certificate, and the own certificate of a key, by its alias, and
the other certificates of a chain by their subjects. A store of OpenSSL names only the own certificate.

In a store without a private key, every certificate is trusted. Java demands its attribute there as well, and finds
nothing in a trust store that OpenSSL has written. The own certificate of a key has the public key of the key, and the
alias of the key if several certificates have it. Java goes by an attribute (localKeyId); it skips a key without a
certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.security.tls.der import DerError
from headrace.security.tls.names import certificate_subject
from headrace.security.tls.pkcs12_bags import Envelope, KeyBag

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate
    from cryptography.x509 import Certificate

_NOT_A_STORE = "or it is neither a PKCS12 nor a JKS store"


class Pkcs12Error(ValueError):
    """The store cannot be read. The message is a part of a sentence and holds no secret."""


@dataclass(frozen=True, slots=True)
class Pkcs12Contents:
    """The private keys of a store as they are stored, and its certificates."""

    keys: tuple[KeyBag, ...]
    certificates: tuple[PKCS12Certificate, ...] = field(repr=False)
    #: The own certificate of the first key, if ``cryptography`` has found the key.
    own: PKCS12Certificate | None = None

    def trusted(self) -> tuple[bytes, ...]:
        """Returns the certificates that Java trusts. The own certificates of keys are among them."""
        named = [one for one in self.certificates if not self.keys or one is self.own or _has_alias(one)]
        return tuple(dict.fromkeys(_der(one.certificate) for one in named))

    def chain_of(self, alias: str, key: bytes) -> tuple[bytes, ...]:
        """Returns the chain of a key; empty if the store has no certificate for it.

        :param key: PKCS8, not encrypted.
        """
        from cryptography.hazmat.primitives.serialization import load_der_private_key

        public = load_der_private_key(key, None).public_key()
        fitting = [one for one in self.certificates if one.certificate.public_key() == public]
        if not fitting:
            return ()
        own = next((one for one in fitting if _name(one).lower() == alias), fitting[0])
        return _chain(own.certificate, [one.certificate for one in self.certificates])


def read_pkcs12(data: bytes, password: str | None) -> Pkcs12Contents:
    """Returns the entries of a store. Their keys may have other passwords.

    :raises Pkcs12Error: if the password is wrong, or the bytes are not a store.
    """
    try:
        envelope = Envelope(data)
    except DerError:
        raise Pkcs12Error(f"it is damaged, {_NOT_A_STORE}") from None
    whole = _load(data, password)
    if whole is not None:
        return replace(whole, keys=envelope.keys or whole.keys)
    # The keys may have another password. Without them the store is read without its MAC, so that is checked before.
    if password is None or not envelope.keys:
        raise Pkcs12Error(f"{'it needs a password' if password is None else 'its password is wrong'}, {_NOT_A_STORE}")
    is_intact = envelope.is_intact(password)
    if is_intact is None:
        raise Pkcs12Error("its MAC has an unknown form; convert it by 'keytool -importkeystore'")
    rest = _load(envelope.without_keys(), password) if is_intact else None
    if rest is None:
        raise Pkcs12Error(f"its password is wrong, {_NOT_A_STORE}")
    return replace(rest, keys=envelope.keys)


def _load(data: bytes, password: str | None) -> Pkcs12Contents | None:
    """Returns what ``cryptography`` finds; None if the password is wrong, or the bytes are not a store."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        store = load_pkcs12(data, None if password is None else password.encode())
    except UnsupportedAlgorithm as error:
        raise Pkcs12Error(f"it uses an algorithm that is not supported ({error})") from None
    except (ValueError, TypeError):
        return None
    certificates = (*([] if store.cert is None else [store.cert]), *store.additional_certs)
    if store.key is None:
        return Pkcs12Contents((), certificates)
    key = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return Pkcs12Contents((KeyBag("1", key, is_encrypted=False),), certificates, store.cert)


def _der(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)


def _name(one: PKCS12Certificate) -> str:
    return (one.friendly_name or b"").decode("utf-8", "replace")


def _has_alias(one: PKCS12Certificate) -> bool:
    name = _name(one)
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
