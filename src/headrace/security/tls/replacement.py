"""Decides whether stores may replace those of a running listener, by Kafka's rules (KIP-226, KIP-978).

* The new key store has as many keys as the old one, and each new certificate has the distinguished name of the old
  one (unless ``ssl.allow.dn.changes``) and at least its subject alternative names (unless ``ssl.allow.san.changes``).
* A listener that was started without a trust store gets none.
* On the listener between brokers, a broker with the new stores and a broker with the old stores trust each other:
  otherwise the first broker that changes its key store would leave the cluster.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.properties import ConfigError
from headrace.security.tls.contexts import client_context, server_context
from headrace.security.tls.handshake import shake_hands
from headrace.security.tls.names import certificate_subject

if TYPE_CHECKING:
    from headrace.security.tls.loaded_stores import LoadedStores


def check_replacement(
    old: LoadedStores, new: LoadedStores, *, allow_dn_changes: bool = False, allow_san_changes: bool = False
) -> None:
    """
    :raises ConfigError: with one line, if the new stores may not replace the old ones.
    """
    if old.trusted is None and new.trusted is not None:
        raise ConfigError("Cannot add a trust store to a listener that was started without one")
    if allow_dn_changes and allow_san_changes:
        return
    if len(old.keys) != len(new.keys):
        raise ConfigError(f"The new key store has {len(new.keys)} keys, the present one has {len(old.keys)}")
    for old_entry, new_entry in zip(old.keys, new.keys, strict=True):
        before, after = certificate_subject(old_entry.chain[0]), certificate_subject(new_entry.chain[0])
        if not allow_dn_changes and _normal(before) != _normal(after):
            raise ConfigError(
                f"The distinguished name of the new key store's certificate ({after}) differs from the present one "
                f"({before})"
            )
        lost = _alternative_names(old_entry.chain[0]) - _alternative_names(new_entry.chain[0])
        if not allow_san_changes and lost:
            raise ConfigError(
                f"The new key store's certificate lacks subject alternative names of the present one: "
                f"{', '.join(sorted(lost))}"
            )


def check_mutual_trust(one: LoadedStores, other: LoadedStores) -> None:
    """Checks that brokers with these stores can connect to each other, in both directions. Hosts are not compared.

    :raises ConfigError: with one line, if one side refuses the other.
    """
    import ssl

    for client, server in ((one, other), (other, one)):
        unnamed = replace(client.options, endpoint_identification_algorithm="")
        try:
            shake_hands(client_context(unnamed, client), server_context(server.options, server))
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", None) or error.reason or "the handshake did not end"
            raise ConfigError(
                f"A broker with these stores could not connect to itself: the trust store must trust the key "
                f"store's certificate ({reason})"
            ) from None


def _normal(name: str) -> str:
    """Java compares names without their case, and without repeated blanks."""
    return " ".join(name.lower().split())


def _alternative_names(certificate: bytes) -> set[str]:
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName, load_der_x509_certificate

    try:
        extension = load_der_x509_certificate(certificate).extensions.get_extension_for_class(SubjectAlternativeName)
    except ExtensionNotFound:
        return set()
    except ValueError:
        raise ConfigError("The certificate's extensions cannot be read") from None
    return {f"{type(name).__name__}:{name.value}" for name in extension.value}
