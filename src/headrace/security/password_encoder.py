"""Encrypts dynamic passwords for the znode tree, in the format of Apache Kafka.

A password is stored as ``name:value`` pairs with commas between them, in any order::

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,initializationVector:<base64>,
    keyLength:128,salt:<base64>,iterations:4096,encryptedPassword:<base64>,passwordLength:9

The key is PBKDF2 of the secret (``password.encoder.secret``) and the salt. ``passwordLength`` is the number of UTF-16
units of the password. Kafka compares it after decryption, and so notices most wrong secrets; AES/GCM notices all of
them (``authenticationTagLength`` is its further pair). Decoding uses the stored parameters, encoding the configured
ones.

The tree's content is bounded before it is used: a stored password cannot make a broker compute for minutes.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from re import compile as regex

from headrace.properties import ConfigError

CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
CIPHERS = (CBC, GCM)
KEY_LENGTHS = (128, 192, 256)
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
#: The algorithms of Java's key factories, with the names of their hash functions here.
KEY_FACTORIES = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA224": "sha224",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    DEFAULT_KEY_FACTORY: "sha512",
}

_SALT_BYTES = 256
_TAG_BITS = 128
_MAX_ITERATIONS = 10_000_000
_MAX_TEXT = 1 << 20
_NUMBER = regex(r"[0-9]{1,9}")


class PasswordNotDecoded(ValueError):
    """A stored password cannot be decrypted. The message holds no secret."""


class PasswordEncoder:
    """Encodes and decodes with one secret."""

    def __init__(
        self,
        secret: str,
        key_factory: str = DEFAULT_KEY_FACTORY,
        cipher: str = CBC,
        key_length: int = 128,
        iterations: int = 4096,
    ) -> None:
        """
        :raises ConfigError: if a parameter is not supported.
        """
        self.secret = secret
        self.key_factory = key_factory
        self.cipher = cipher
        self.key_length = key_length
        self.iterations = iterations
        for name, value, allowed in (
            ("keyfactory.algorithm", key_factory, tuple(KEY_FACTORIES)),
            ("cipher.algorithm", cipher, CIPHERS),
            ("key.length", key_length, KEY_LENGTHS),
        ):
            if value not in allowed:
                raise ConfigError(
                    f"Invalid value {str(value)!r} for configuration password.encoder.{name}: "
                    f"must be one of {', '.join(map(str, allowed))}"
                )

    def encode(self, password: str) -> str:
        """Returns a password as it is stored."""
        salt = os.urandom(_SALT_BYTES)
        vector = os.urandom(16 if self.cipher == CBC else 12)
        key = _key(self.secret, self.key_factory, salt, self.iterations, self.key_length)
        pairs = {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "initializationVector": _base64(vector),
            "keyLength": self.key_length,
            "salt": _base64(salt),
            "iterations": self.iterations,
            "encryptedPassword": _base64(_encrypted(self.cipher, key, vector, password.encode())),
            "passwordLength": _java_length(password),
        }
        if self.cipher == GCM:
            pairs["authenticationTagLength"] = _TAG_BITS
        return ",".join(f"{name}:{value}" for name, value in pairs.items())

    def decode(self, stored: str) -> str:
        """Returns a stored password.

        :raises PasswordNotDecoded: if the text is not a stored password, or was encoded with another secret.
        """
        pairs = _pairs(stored)
        factory, cipher = _text(pairs, "keyFactoryAlgorithm"), _text(pairs, "cipherAlgorithm")
        key_length, iterations = _number(pairs, "keyLength"), _number(pairs, "iterations")
        if factory not in KEY_FACTORIES or cipher not in CIPHERS or key_length not in KEY_LENGTHS:
            raise PasswordNotDecoded("it was encoded with parameters that are not supported")
        if cipher == GCM and _number(pairs, "authenticationTagLength") != _TAG_BITS:
            raise PasswordNotDecoded("it was encoded with parameters that are not supported")
        if not 1 <= iterations <= _MAX_ITERATIONS:
            raise PasswordNotDecoded(f"it was encoded with {iterations} iterations")
        key = _key(self.secret, factory, _bytes(pairs, "salt"), iterations, key_length)
        encrypted, vector = _bytes(pairs, "encryptedPassword"), _bytes(pairs, "initializationVector")
        password = _decrypted(cipher, key, vector, encrypted)
        if _java_length(password) != _number(pairs, "passwordLength"):
            raise PasswordNotDecoded("it was encoded with another secret")
        return password


# -- the stored form


def _pairs(stored: str) -> dict[str, str]:
    if len(stored) > _MAX_TEXT:
        raise PasswordNotDecoded("it is too long")
    parts = (pair.rpartition(":") for pair in stored.split(","))
    return {name.strip(): value.strip() for name, _, value in parts}


def _text(pairs: Mapping[str, str], name: str) -> str:
    if name not in pairs:
        raise PasswordNotDecoded(f"it has no {name}")
    return pairs[name]


def _number(pairs: Mapping[str, str], name: str) -> int:
    text = _text(pairs, name)
    if _NUMBER.fullmatch(text) is None:
        raise PasswordNotDecoded(f"its {name} is not a number")
    return int(text)


def _bytes(pairs: Mapping[str, str], name: str) -> bytes:
    try:
        return b64decode(_text(pairs, name), validate=True)
    except ValueError as error:
        if isinstance(error, PasswordNotDecoded):
            raise
        raise PasswordNotDecoded(f"its {name} is not base64") from None


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


# -- the ciphers


def _key(secret: str, key_factory: str, salt: bytes, iterations: int, key_length: int) -> bytes:
    from hashlib import pbkdf2_hmac  # loads OpenSSL, which most brokers never use

    return pbkdf2_hmac(KEY_FACTORIES[key_factory], secret.encode(), salt, iterations, key_length // 8)


def _encrypted(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == GCM:
        return AESGCM(key).encrypt(vector, data, None)
    padder = PKCS7(128).padder()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()


def _decrypted(cipher: str, key: bytes, vector: bytes, data: bytes) -> str:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    try:
        if cipher == GCM:
            return AESGCM(key).decrypt(vector, data, None).decode()
        decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
        unpadder = PKCS7(128).unpadder()
        padded = decryptor.update(data) + decryptor.finalize()
        return (unpadder.update(padded) + unpadder.finalize()).decode()
    except (ValueError, InvalidTag):
        raise PasswordNotDecoded("it was encoded with another secret, or is damaged") from None
