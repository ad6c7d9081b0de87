"""Reads Java's own format of key stores, JKS. Numbers are big endian.

::

    FEEDFEED, version 1 or 2 (4 bytes), number of entries (4 bytes)
    entry:     tag (4), alias (string), date (8), then
      tag 1    a private key: length (4), protected key, number of certificates (4), certificates
      tag 2    a trusted certificate
    certificate: type (string, not in version 1), length (4), DER
    string:      length (2), UTF-8 as Java writes it
    digest of the store (20 bytes): SHA-1 of password, "Mighty Aphrodite" and everything before the digest

A protected key is an EncryptedPrivateKeyInfo with an algorithm of Sun's: 20 bytes of salt, the key XOR a stream, and
20 bytes of check. The stream's blocks are SHA-1(password, block before), and begin with the salt. The check is
SHA-1(password, key). Passwords are UTF-16. SHA-1 and the format are weak by today's rules; who can read the file can
guess passwords quickly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1
from hmac import compare_digest
from typing import NamedTuple

from headrace.security.tls.der import (
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    DerError,
    object_identifier,
    read_element,
)

MAGIC = bytes.fromhex("feedfeed")
JCEKS_MAGIC = bytes.fromhex("cececece")

_DIGEST_BYTES = 20
_PHRASE = b"Mighty Aphrodite"
_KEY_TAG, _CERTIFICATE_TAG = 1, 2
_SUN_KEY_PROTECTOR = "1.3.6.1.4.1.42.2.17.1.1"


class JksError(ValueError):
    """The store cannot be read. The message is a part of a sentence and holds no secret."""


@dataclass(frozen=True, slots=True)
class JksKey:
    alias: str
    #: The key as it is stored, protected by a password.
    protected: bytes = field(repr=False)
    chain: tuple[bytes, ...]


class JksContents(NamedTuple):
    keys: tuple[JksKey, ...]
    trusted: tuple[bytes, ...]
    #: Of all entries, in the order of the file.
    aliases: tuple[str, ...]


def read_jks(data: bytes, password: str | None) -> JksContents:
    """Returns the entries of a store.

    :param password: the password of the store; None skips the check of the digest, as in Java.
    :raises JksError: if the password is wrong, or the bytes are not a store.
    """
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None and not compare_digest(sha1(_utf_16(password) + _PHRASE + body).digest(), digest):
        raise JksError("its password is wrong, or the file was changed")
    reader = _Reader(body)
    if reader.take(4) != MAGIC:
        raise JksError("it is not a JKS store")
    version = reader.number(4)
    if version not in (1, 2):
        raise JksError(f"it has the unknown version {version} of JKS")
    keys: list[JksKey] = []
    trusted: list[bytes] = []
    aliases: list[str] = []
    for _ in range(reader.number(4)):
        tag, alias = reader.number(4), reader.string()
        aliases.append(alias)
        reader.take(8)  # the date
        if tag == _KEY_TAG:
            protected = reader.take(reader.number(4))
            chain = tuple(_certificate(reader, version) for _ in range(reader.number(4)))
            keys.append(JksKey(alias, protected, chain))
        elif tag == _CERTIFICATE_TAG:
            trusted.append(_certificate(reader, version))
        else:
            raise JksError(f"it has an entry of the unknown kind {tag}")
    if not reader.is_at_end:
        raise JksError("it has bytes after its last entry")
    return JksContents(tuple(keys), tuple(trusted), tuple(aliases))


def recover_key(protected: bytes, password: str) -> bytes:
    """Returns the private key (PKCS8) of a protected key.

    :raises JksError: if the password is wrong, or the key is protected in another way.
    """
    try:
        info = list(read_element(protected).expect(SEQUENCE).elements())
        algorithm = next(info[0].expect(SEQUENCE).elements()).expect(OBJECT_IDENTIFIER)
        content = info[1].expect(OCTET_STRING).content
        is_known = object_identifier(algorithm.content) == _SUN_KEY_PROTECTOR
    except (DerError, IndexError, StopIteration):
        raise JksError("a private key is damaged") from None
    if not is_known or len(content) < 2 * _DIGEST_BYTES:
        raise JksError("a private key is protected in an unknown way")
    secret = _utf_16(password)
    encrypted, check = content[_DIGEST_BYTES:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    stream, block = bytearray(), content[:_DIGEST_BYTES]
    while len(stream) < len(encrypted):
        block = sha1(secret + block).digest()
        stream += block
    key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not compare_digest(sha1(secret + key).digest(), check):
        raise JksError("the password of its private key is wrong")
    return key


def _utf_16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _certificate(reader: _Reader, version: int) -> bytes:
    kind = reader.string() if version == 2 else "X.509"
    if kind != "X.509":
        raise JksError(f"it has a certificate of the unknown type {kind!r}")
    return reader.take(reader.number(4))


class _Reader:
    """Takes numbers and strings from bytes, and never more than there are."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise JksError("it ends in the middle of an entry")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def string(self) -> str:
        return self.take(self.number(2)).decode("utf-8", "replace")
