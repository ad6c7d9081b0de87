"""The stores of a listener as they were read, with the stamps of their files.

Kafka replaces the stores of a listener at run time, either because a setting has changed or because a file was written
again (``file_stamps.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.security.file_stamps import Stamp, stamp_of
from headrace.security.tls.names import certificate_subject
from headrace.security.tls.stores import KeyEntry, load_key_store, load_trust_store

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.security.tls.options import TlsOptions


@dataclass(frozen=True, slots=True)
class LoadedStores:
    """The stores that :meth:`load` has read."""

    options: TlsOptions
    keys: tuple[KeyEntry, ...]
    #: None: no trust store is set, and the certificates of the system are trusted.
    trusted: tuple[bytes, ...] | None = field(repr=False)
    stamps: tuple[Stamp, ...] = field(repr=False)

    @classmethod
    def load(cls, options: TlsOptions) -> LoadedStores:
        """
        :raises ConfigError: with one line, if a store cannot be read.
        """
        # The stamps come first: a file that changes while it is read is read again later.
        stamps = _stamps(options)
        return cls(options, load_key_store(options), load_trust_store(options), stamps)

    def is_current(self, options: TlsOptions) -> bool:
        """Whether the settings are the same, and no file has changed."""
        return options == self.options and _stamps(options) == self.stamps

    def expired(self, now: datetime) -> list[str]:
        """Returns the subjects of own certificates that are not valid now."""
        return [certificate_subject(entry.chain[0]) for entry in self.keys if not _is_valid(entry.chain[0], now)]


def _is_valid(certificate: bytes, now: datetime) -> bool:
    from cryptography.x509 import load_der_x509_certificate

    read = load_der_x509_certificate(certificate)
    return read.not_valid_before_utc <= now <= read.not_valid_after_utc


def _stamps(options: TlsOptions) -> tuple[Stamp, ...]:
    return tuple(
        stamp_of(path) for path in (options.keystore_location, options.truststore_location) if path is not None
    )
