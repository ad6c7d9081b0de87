"""Makes contexts of Python's ``ssl`` from :class:`TlsOptions`.

What differs from the defaults of ``ssl``, because Java does so:

* A certificate in the trust store is trusted, also if it is not self-signed (partial chains).
* Without a trust store, the certificates of the system are trusted.
* A list of cipher suites also says which versions of TLS there are.
* ``ssl.protocol`` is the newest version that a client uses. It does not limit a server.

A server that asks for certificates of clients gives out no session tickets in TLS 1.3: every new connection shows its
certificate again, so a trust store that has changed counts for all of them. Other servers give out one ticket; the two
of OpenSSL help clients that open two connections at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headrace.properties import ConfigError
from headrace.security.tls.cipher_suites import chosen_suites
from headrace.security.tls.loaded_stores import LoadedStores
from headrace.security.tls.options import TLS_1_2, TLS_1_3

if TYPE_CHECKING:
    from ssl import SSLContext

    from headrace.security.tls.options import TlsOptions
    from headrace.security.tls.stores import KeyEntry

_VERSIONS = (TLS_1_2, TLS_1_3)
#: The values of ssl.protocol, each with the versions that it allows a client.
_PROTOCOLS = {"TLS": _VERSIONS, TLS_1_3: _VERSIONS, TLS_1_2: (TLS_1_2,)}
_CLIENT_AUTH = ("required", "requested", "none")


def server_context(options: TlsOptions, stores: LoadedStores | None = None) -> SSLContext:
    """Makes the context of a listener.

    :param stores: the stores of these options, if they were read before.
    :raises ConfigError: with one line, if the settings or the stores cannot be used.
    """
    import ssl

    if options.client_auth not in _CLIENT_AUTH:
        raise ConfigError(
            f"Invalid value {options.client_auth!r} for configuration ssl.client.auth: "
            f"must be one of {', '.join(_CLIENT_AUTH)}"
        )
    # The trust store is read also if nobody asks for certificates: a store that cannot be read is a mistake.
    stores = stores or LoadedStores.load(options)
    if not stores.keys:
        raise ConfigError("A listener with TLS needs a key store: set ssl.keystore.location, or ssl.keystore.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions_and_suites(context, options, _versions(options))
    _load_keys(context, stores.keys)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    asks = options.client_auth != "none"
    if asks:
        _trust(context, stores.trusted, ssl.Purpose.CLIENT_AUTH)
        context.verify_mode = ssl.CERT_REQUIRED if options.client_auth == "required" else ssl.CERT_OPTIONAL
        context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0 if asks else 1
    return context


def client_context(options: TlsOptions, stores: LoadedStores | None = None) -> SSLContext:
    """Makes the context of a client. Pass the broker's host as ``server_hostname`` to whatever uses the context.

    :param stores: the stores of these options, if they were read before.
    :raises ConfigError: with one line, if the settings or the stores cannot be used.
    """
    import ssl

    algorithm = options.endpoint_identification_algorithm.strip().lower()
    if algorithm not in ("https", ""):
        raise ConfigError(
            f"Invalid value {options.endpoint_identification_algorithm!r} for configuration "
            f"ssl.endpoint.identification.algorithm: must be https, or empty for no check of the host"
        )
    stores = stores or LoadedStores.load(options)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = algorithm == "https"
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_COMPRESSION
    _set_versions_and_suites(context, options, _client_versions(options))
    _load_keys(context, stores.keys)
    _trust(context, stores.trusted, ssl.Purpose.SERVER_AUTH)
    return context


# -- versions and suites


def _set_versions_and_suites(context: SSLContext, options: TlsOptions, versions: tuple[str, ...]) -> None:
    import ssl

    suites = chosen_suites(options.cipher_suites)
    if suites.tls_1_2 or suites.tls_1_3:
        by_version = {TLS_1_2: suites.tls_1_2, TLS_1_3: suites.tls_1_3}
        versions = tuple(version for version in versions if by_version[version])
        if not versions:
            raise ConfigError("ssl.cipher.suites has no cipher suite of a version in ssl.enabled.protocols")
    numbers = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
    context.minimum_version, context.maximum_version = numbers[versions[0]], numbers[versions[-1]]
    if suites.tls_1_2 and TLS_1_2 in versions:
        try:
            context.set_ciphers(":".join(suites.tls_1_2))
        except ssl.SSLError:
            raise ConfigError("OpenSSL supports none of the cipher suites in ssl.cipher.suites") from None
    if suites.tls_1_3 and TLS_1_3 in versions:
        _set_tls_1_3_suites(context, suites.tls_1_3)


def _versions(options: TlsOptions) -> tuple[str, ...]:
    """Returns the enabled versions, the oldest first."""
    if options.protocol not in _PROTOCOLS:
        raise ConfigError(
            f"Invalid value {options.protocol!r} for configuration ssl.protocol: must be one of {', '.join(_PROTOCOLS)}"
        )
    unknown = [version for version in options.enabled_protocols if version not in _VERSIONS]
    if unknown:
        raise ConfigError(
            f"Invalid value {', '.join(unknown)!r} for configuration ssl.enabled.protocols: "
            f"must be a list of {', '.join(_VERSIONS)}"
        )
    wanted = options.enabled_protocols or _VERSIONS
    return tuple(version for version in _VERSIONS if version in wanted)


def _client_versions(options: TlsOptions) -> tuple[str, ...]:
    """Returns the enabled versions of a client: ssl.protocol is the newest of them. In Java it limits no server."""
    enabled = tuple(version for version in _versions(options) if version in _PROTOCOLS[options.protocol])
    if not enabled:
        raise ConfigError(
            f"ssl.protocol ({options.protocol}) allows no version in ssl.enabled.protocols "
            f"({', '.join(options.enabled_protocols)})"
        )
    return enabled


def _set_tls_1_3_suites(context: SSLContext, names: tuple[str, ...]) -> None:
    if set(_tls_1_3_suites(context)) == set(names):
        return
    if hasattr(context, "set_ciphersuites"):  # Python 3.15
        context.set_ciphersuites(":".join(names))
    else:
        from headrace.security.tls.openssl_calls import set_ciphersuites

        set_ciphersuites(context, ":".join(names))
    if set(_tls_1_3_suites(context)) != set(names):
        raise ConfigError(
            f"Python {sys.version.split()[0]} cannot restrict the cipher suites of TLS 1.3 here: list all of "
            f"{', '.join(_tls_1_3_suites(context))} in ssl.cipher.suites, or only suites of TLS 1.2"
        )


def _tls_1_3_suites(context: SSLContext) -> list[str]:
    return [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == TLS_1_3]


# -- keys and certificates


def _load_keys(context: SSLContext, entries: tuple[KeyEntry, ...]) -> None:
    """Loads one key of each kind (RSA, EC, Ed25519): OpenSSL keeps one of each, and Java takes the first that fits."""
    import ssl

    from headrace.security.tls.key_files import key_file

    loaded: set[str] = set()
    for entry in entries:
        kind = _key_kind(entry)
        if kind in loaded:
            continue
        loaded.add(kind)
        with key_file(entry) as path:
            try:
                context.load_cert_chain(path)
            except ssl.SSLError as error:
                raise ConfigError(f"Cannot use the key store: {_REASONS.get(error.reason, error.reason)}") from None


def _key_kind(entry: KeyEntry) -> str:
    """Returns the kind of a key.

    :raises ConfigError: if the key does not belong to its certificate.
    """
    from cryptography.hazmat.primitives.serialization import load_der_private_key
    from cryptography.x509 import load_der_x509_certificate

    key = load_der_private_key(entry.key, None)
    if key.public_key() != load_der_x509_certificate(entry.chain[0]).public_key():
        raise ConfigError(
            "Cannot use the key store: its private key does not belong to the first certificate of its chain"
        )
    return type(key).__name__


_REASONS = {
    "EE_KEY_TOO_SMALL": "the key is too short, OpenSSL refuses it",
    "CA_KEY_TOO_SMALL": "the key of an authority in the chain is too short, OpenSSL refuses it",
    "CA_MD_TOO_WEAK": "a certificate of the chain has a weak signature, OpenSSL refuses it",
}


def _trust(context: SSLContext, certificates: tuple[bytes, ...] | None, purpose: object) -> None:
    import ssl

    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if certificates is None:
        assert isinstance(purpose, ssl.Purpose)
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(cadata=b"".join(certificates))
    except ssl.SSLError as error:
        raise ConfigError(f"Cannot use the trust store: {error.reason}") from None
