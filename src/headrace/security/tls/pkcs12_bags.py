"""Opens the envelope of a PKCS12 store (RFC 7292): its private keys as they are stored, and the store without them.

::

    PFX             version, authenticated safe (octets), MAC of these octets with the store's password (optional)
    safe            a row of contents: plain (data), or encrypted with the store's password (encryptedData)
    plain contents  a row of bags: keys, encrypted keys, certificates; each with attributes such as its alias

``cryptography`` reads a store with one key, whose password is the store's password. Java's stores may have several
keys, and each key may have a password of its own. So the keys are taken out here, and ``cryptography`` reads the
certificates of the rest. Keys in encrypted contents are not found here; neither Java nor OpenSSL writes them there.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.security.tls.der import (
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    SET,
    DerError,
    Element,
    encoded,
    object_identifier,
    read_element,
)

_EXPLICIT = 0xA0
_BMP_STRING = 0x1E
_DATA = "1.2.840.113549.1.7.1"
_KEY_BAG, _ENCRYPTED_KEY_BAG = "1.2.840.113549.1.12.10.1.1", "1.2.840.113549.1.12.10.1.2"
_FRIENDLY_NAME = "1.2.840.113549.1.9.20"
_HASHES = {
    "1.3.14.3.2.26": "sha1",
    "2.16.840.1.101.3.4.2.4": "sha224",
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}
_MAC_KEY = b"\x03"
#: Java reads no store with more.
_MAX_ITERATIONS = 5_000_000


@dataclass(frozen=True, slots=True)
class KeyBag:
    """A private key as it is stored: PKCS8, encrypted or not."""

    #: In lower case, as Java has it. A key without a name has the number that Java gives it.
    alias: str
    key: bytes = field(repr=False)
    is_encrypted: bool


class Envelope:
    def __init__(self, data: bytes) -> None:
        """
        :raises DerError: if the bytes are not a store.
        """
        try:
            self._version, self._safe, *self._mac = read_element(data).expect(SEQUENCE).elements()
            self._kind, self._octets = _content(self._safe, OCTET_STRING)
            self._contents = list(read_element(self._octets.content).expect(SEQUENCE).elements())
            self.keys = self._key_bags()
        except (ValueError, StopIteration) as error:
            raise DerError(str(error)) from None

    def _key_bags(self) -> tuple[KeyBag, ...]:
        found: list[KeyBag] = []
        unnamed = 0
        for bags in map(_bags, self._contents):
            for bag in bags or ():
                kind, value, *attributes = bag.expect(SEQUENCE).elements()
                name = object_identifier(kind.expect(OBJECT_IDENTIFIER).content)
                if name not in (_KEY_BAG, _ENCRYPTED_KEY_BAG):
                    continue
                alias = _alias(attributes)
                if alias is None:
                    unnamed += 1
                    alias = str(unnamed)
                key = next(value.expect(_EXPLICIT).elements()).encoded
                found.append(KeyBag(alias.lower(), key, name == _ENCRYPTED_KEY_BAG))
        return tuple(found)

    def without_keys(self) -> bytes:
        """Returns a store with everything but the keys, and without a MAC."""
        contents = b"".join(_without_keys(content) for content in self._contents)
        octets = encoded(_EXPLICIT, encoded(OCTET_STRING, encoded(SEQUENCE, contents)))
        return encoded(SEQUENCE, self._version.encoded + encoded(SEQUENCE, self._kind.encoded + octets))

    def is_intact(self, password: str) -> bool | None:
        """Whether the MAC fits the password and the content; None if the MAC is of an unknown kind.

        A store without a MAC counts as intact, as in Java.
        """
        if not self._mac:
            return True
        try:
            digest_info, salt, *count = self._mac[0].expect(SEQUENCE).elements()
            algorithm, digest = digest_info.expect(SEQUENCE).elements()
            name = next(algorithm.expect(SEQUENCE).elements()).expect(OBJECT_IDENTIFIER)
            hash_name = _HASHES.get(object_identifier(name.content))
            iterations = int.from_bytes(count[0].expect(INTEGER).content, "big") if count else 1
            if hash_name is None or not 1 <= iterations <= _MAX_ITERATIONS:
                return None
            key = _mac_key(hash_name, password, salt.expect(OCTET_STRING).content, iterations)
        except (ValueError, StopIteration):
            return None
        return hmac.compare_digest(hmac.digest(key, self._octets.content, hash_name), digest.content)


def _content(info: Element, tag: int) -> tuple[Element, Element]:
    """Returns the kind and the content of a ContentInfo."""
    kind, explicit = info.expect(SEQUENCE).elements()
    return kind, next(explicit.expect(_EXPLICIT).elements()).expect(tag)


def _bags(content: Element) -> list[Element] | None:
    """Returns the bags of plain contents; None if the contents are encrypted."""
    kind = next(content.expect(SEQUENCE).elements()).expect(OBJECT_IDENTIFIER)
    if object_identifier(kind.content) != _DATA:
        return None
    return list(read_element(_content(content, OCTET_STRING)[1].content).expect(SEQUENCE).elements())


def _without_keys(content: Element) -> bytes:
    bags = _bags(content)
    if bags is None:
        return content.encoded
    kept = b"".join(bag.encoded for bag in bags if not _is_key(bag))
    kind, _ = content.elements()
    octets = encoded(OCTET_STRING, encoded(SEQUENCE, kept))
    return encoded(SEQUENCE, kind.encoded + encoded(_EXPLICIT, octets))


def _is_key(bag: Element) -> bool:
    return object_identifier(next(bag.elements()).content) in (_KEY_BAG, _ENCRYPTED_KEY_BAG)


def _alias(attributes: list[Element]) -> str | None:
    for name, values in _pairs(attributes):
        if object_identifier(name.expect(OBJECT_IDENTIFIER).content) == _FRIENDLY_NAME:
            value = next(values.expect(SET).elements()).expect(_BMP_STRING)
            return value.content.decode("utf-16-be", "replace")
    return None


def _pairs(attributes: list[Element]) -> Iterator[tuple[Element, Element]]:
    for row in attributes:
        for attribute in row.expect(SET).elements():
            name, values = attribute.expect(SEQUENCE).elements()
            yield name, values


def _mac_key(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Derives the key of the MAC (RFC 7292, appendix B.2). It has the length of the hash, so one block is enough."""
    block = hashlib.new(hash_name).block_size
    secret = password.encode("utf-16-be", "surrogatepass") + b"\0\0"
    key = _MAC_KEY * block + _filled(salt, block) + _filled(secret, block)
    for _ in range(iterations):
        key = hashlib.new(hash_name, key).digest()
    return key


def _filled(text: bytes, block: int) -> bytes:
    """Repeats a text up to a multiple of the block's length."""
    size = -(-len(text) // block) * block
    return (text * (size // len(text) + 1))[:size] if text else b""
