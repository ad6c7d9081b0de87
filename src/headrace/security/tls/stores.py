"""Key stores and trust stores: what a side of TLS proves about itself, and which certificates it trusts.

A store comes from a file (``ssl.keystore.location``) or, as PEM text, from the settings themselves
(``ssl.keystore.key`` and ``ssl.keystore.certificate.chain``). Java's types JKS and PKCS12 read files of both formats,
so the first bytes of a file decide, not the setting. Which settings may be combined is decided as in Kafka.

A private key stays DER (PKCS8, not encrypted) in memory, and does not appear in ``repr``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.properties import ConfigError
from headrace.security.small_files import UnreadableFileError, read_small_file
from headrace.security.tls.java_order import order_of_jks, order_of_key_manager
from headrace.security.tls.jks import JCEKS_MAGIC, MAGIC, JksError, read_jks, recover_key
from headrace.security.tls.pem import PemError, certificates_in, private_key_in
from headrace.security.tls.pkcs12 import Pkcs12Error, read_pkcs12

if TYPE_CHECKING:
    from headrace.security.tls.options import TlsOptions
    from headrace.security.tls.pkcs12_bags import KeyBag

#: A larger file is not read.
_MAX_FILE_BYTES = 16 << 20

_T = TypeVar("_T")

PEM = "PEM"
_JAVA_TYPES = ("JKS", "PKCS12")


class StoreError(ValueError):
    """A store cannot be used. The message is a part of a sentence and holds no secret."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key with its certificates, the own certificate first. All of them are DER."""

    key: bytes = field(repr=False)
    chain: tuple[bytes, ...]
    alias: str = "kafka"


def load_key_store(options: TlsOptions) -> tuple[KeyEntry, ...]:
    """Returns the keys of the key store; none if no key store is set.

    :raises ConfigError: if the settings contradict each other, or the store cannot be read.
    """
    problem = _key_store_problem(options)
    if problem is not None:
        raise ConfigError(problem)
    if options.keystore_key is not None:
        assert options.keystore_certificate_chain is not None
        return (_pem_entry(options.keystore_key, options.keystore_certificate_chain, options.key_password),)
    if options.keystore_location is None:
        return ()
    path = Path(options.keystore_location)
    if options.keystore_type == PEM:
        text = _text("ssl.keystore.location", path)
        return (_pem_entry(text, text, options.key_password, path),)
    keys = _checked("ssl.keystore.location", path, lambda: _java_keys(path, options))
    if not keys:
        raise ConfigError(f"Cannot use {path} of ssl.keystore.location: it has no private key")
    return keys


def load_trust_store(options: TlsOptions) -> tuple[bytes, ...] | None:
    """Returns the trusted certificates as DER; None if no trust store is set, and the system's are to be used.

    :raises ConfigError: if the settings contradict each other, or the store cannot be read.
    """
    problem = _trust_store_problem(options)
    if problem is not None:
        raise ConfigError(problem)
    if options.truststore_certificates is not None:
        return _checked(
            "ssl.truststore.certificates", None, lambda: _certificates(options.truststore_certificates or "")
        )
    if options.truststore_location is None:
        return None
    name, path = "ssl.truststore.location", Path(options.truststore_location)
    if options.truststore_type == PEM:
        text = _text(name, path)
        return _checked(name, path, lambda: _certificates(text))
    trusted = _checked(name, path, lambda: _check_certificates(_java_trusted(path, options)))
    if not trusted:
        raise ConfigError(f"Cannot use {path} of {name}: it has no trusted certificate")
    return trusted


# -- which settings may be combined


def _key_store_problem(options: TlsOptions) -> str | None:
    is_pem, has_file = options.keystore_type == PEM, options.keystore_location is not None
    has_key, has_chain = options.keystore_key is not None, options.keystore_certificate_chain is not None
    has_password = options.keystore_password is not None
    rules = (
        (
            not _is_known(options.keystore_type),
            f"ssl.keystore.type must be PEM, PKCS12 or JKS, not {options.keystore_type}",
        ),
        (has_key and not is_pem, "ssl.keystore.key needs ssl.keystore.type=PEM"),
        (has_key and not has_chain, "ssl.keystore.key is set, but ssl.keystore.certificate.chain is not"),
        (has_chain and not has_key, "ssl.keystore.certificate.chain is set, but ssl.keystore.key is not"),
        (has_key and has_file, "ssl.keystore.key and ssl.keystore.location are both set"),
        (is_pem and has_password, "a PEM key store has no ssl.keystore.password, only ssl.key.password"),
        (not has_file and has_password, "ssl.keystore.password is set, but ssl.keystore.location is not"),
        (
            has_file and not is_pem and not has_password,
            "ssl.keystore.location is set, but ssl.keystore.password is not",
        ),
    )
    return next((f"Cannot use the key store: {text}" for is_broken, text in rules if is_broken), None)


def _trust_store_problem(options: TlsOptions) -> str | None:
    is_pem, has_file = options.truststore_type == PEM, options.truststore_location is not None
    has_certificates = options.truststore_certificates is not None
    has_password = options.truststore_password is not None
    rules = (
        (
            not _is_known(options.truststore_type),
            f"ssl.truststore.type must be PEM, PKCS12 or JKS, not {options.truststore_type}",
        ),
        (has_certificates and not is_pem, "ssl.truststore.certificates needs ssl.truststore.type=PEM"),
        (has_certificates and has_file, "ssl.truststore.certificates and ssl.truststore.location are both set"),
        (is_pem and has_password, "a PEM trust store has no ssl.truststore.password"),
        (not has_file and has_password, "ssl.truststore.password is set, but ssl.truststore.location is not"),
    )
    return next((f"Cannot use the trust store: {text}" for is_broken, text in rules if is_broken), None)


def _is_known(store_type: str) -> bool:
    return store_type == PEM or store_type.upper() in _JAVA_TYPES


# -- reading


def _read(name: str, path: Path) -> bytes:
    try:
        return read_small_file(path, _MAX_FILE_BYTES)
    except UnreadableFileError as error:
        raise ConfigError(f"Cannot read {path} of {name}: {error}") from None


def _text(name: str, path: Path) -> str:
    # Kafka's inline values are ASCII; comments in a file may be anything.
    return _read(name, path).decode("utf-8", "replace")


def _java_keys(path: Path, options: TlsOptions) -> tuple[KeyEntry, ...]:
    """Returns the private keys of a file of the formats JKS or PKCS12, in the order in which Java considers them."""
    data, password = _read("ssl.keystore.location", path), options.keystore_password
    assert password is not None
    key_password = password if options.key_password is None else options.key_password
    found = _jks_keys(data, password, key_password) if _is_jks(data) else _pkcs12_keys(data, password, key_password)
    keys = {one.alias: one for one in found if one.chain}  # Java skips a key without a certificate
    if found and not keys:
        raise StoreError("a private key has no certificate")
    for one in keys.values():
        _check_certificates(one.chain)
    return tuple(keys[alias] for alias in order_of_key_manager(list(keys)))


def _jks_keys(data: bytes, password: str, key_password: str) -> list[KeyEntry]:
    store = read_jks(data, password)
    keys = {one.alias.lower(): one for one in store.keys}
    # Trusted certificates are entries of Java's table, too.
    listed = [alias for alias in order_of_jks([alias.lower() for alias in store.aliases]) if alias in keys]
    plain = [(alias, recover_key(keys[alias].protected, key_password)) for alias in listed]
    return [KeyEntry(decrypted_key(key, None), keys[alias].chain, alias) for alias, key in plain]


def _pkcs12_keys(data: bytes, password: str, key_password: str) -> list[KeyEntry]:
    contents = read_pkcs12(data, password)
    plain = [(one.alias, _pkcs12_key(one, key_password)) for one in contents.keys]
    return [KeyEntry(key, contents.chain_of(alias, key), alias) for alias, key in plain]


def _pkcs12_key(one: KeyBag, key_password: str) -> bytes:
    try:
        return decrypted_key(one.key, key_password if one.is_encrypted else None)
    except StoreError:
        raise StoreError(
            f"its private key {one.alias!r} cannot be read: ssl.key.password is wrong (if it is not set, "
            "ssl.keystore.password counts), or the key is not valid"
        ) from None


def _java_trusted(path: Path, options: TlsOptions) -> tuple[bytes, ...]:
    """Returns the certificates that Java trusts in such a file.

    Java's trust manager trusts the own certificate of a key entry, too, but not the rest of its chain.
    """
    data, password = _read("ssl.truststore.location", path), options.truststore_password
    if _is_jks(data):
        store = read_jks(data, password)
        return (*store.trusted, *(one.chain[0] for one in store.keys if one.chain))
    return read_pkcs12(data, password).trusted()


def _is_jks(data: bytes) -> bool:
    if data.startswith(JCEKS_MAGIC):
        raise StoreError("it is a JCEKS store; convert it by 'keytool -importkeystore -deststoretype PKCS12'")
    return data.startswith(MAGIC)


def _pem_entry(key: str, chain: str, password: str | None, path: Path | None = None) -> KeyEntry:
    key_name, chain_name = (
        ("ssl.keystore.key", "ssl.keystore.certificate.chain") if path is None else ("ssl.keystore.location",) * 2
    )
    return KeyEntry(
        _checked(key_name, path, lambda: decrypted_key(private_key_in(key), password)),
        _checked(chain_name, path, lambda: _certificates(chain)),
    )


def _certificates(text: str) -> tuple[bytes, ...]:
    return _check_certificates(certificates_in(text))


def _check_certificates(found: tuple[bytes, ...]) -> tuple[bytes, ...]:
    from cryptography.x509 import load_der_x509_certificate

    for number, data in enumerate(found, 1):
        try:
            load_der_x509_certificate(data)
        except ValueError:
            raise StoreError(f"certificate {number} is not a valid X.509 certificate") from None
    return found


def decrypted_key(data: bytes, password: str | None) -> bytes:
    """Returns a private key as unencrypted PKCS8.

    :raises StoreError: if the password is wrong, missing or not needed, or the key is not valid.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_der_private_key,
    )

    try:
        key = load_der_private_key(data, None if password is None else password.encode())
    except TypeError:
        has = "is not encrypted, but ssl.key.password is set" if password is not None else "needs ssl.key.password"
        raise StoreError(f"its private key {has}") from None
    except (ValueError, UnsupportedAlgorithm):
        wrong = "" if password is None else "ssl.key.password is wrong, or "
        raise StoreError(f"its private key cannot be read ({wrong}it is not a valid PKCS8 key)") from None
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def _checked(name: str, path: Path | None, read: Callable[[], _T]) -> _T:
    """Calls back, and turns errors of the content into one line."""
    try:
        return read()
    except (StoreError, PemError, JksError, Pkcs12Error) as error:
        what = name if path is None else f"{path} of {name}"
        raise ConfigError(f"Cannot use {what}: {error}") from None
