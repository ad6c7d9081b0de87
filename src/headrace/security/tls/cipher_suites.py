"""Cipher suites: the names of IANA, which Java and Kafka's settings use, and the names of OpenSSL.

A suite belongs to one version of TLS: the five suites of TLS 1.3 have no ``WITH`` in their names. A list that names
only suites of one version switches the other version off, as in Java.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.properties import ConfigError

#: Suites of TLS 1.3 have the same name everywhere.
TLS_1_3_SUITES = frozenset(
    {
        "TLS_AES_256_GCM_SHA384",
        "TLS_AES_128_GCM_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)

#: Java lists this name among the suites. It is a signal, not a suite, and OpenSSL always sends it.
_SIGNALS = frozenset({"TLS_EMPTY_RENEGOTIATION_INFO_SCSV"})

#: Key exchange and signature: IANA's words, OpenSSL's words.
_EXCHANGES = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "RSA": "",
}
_CIPHERS = {
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA": "AES128-SHA",
}
#: Combinations that do not exist.
_NO_SUITES = frozenset(
    {
        "TLS_RSA_WITH_CHACHA20_POLY1305_SHA256",
        *(f"TLS_{exchange}_WITH_AES_256_CBC_SHA384" for exchange in ("DHE_RSA", "RSA")),
        *(f"TLS_{exchange}_WITH_AES_256_CBC_SHA256" for exchange in ("ECDHE_ECDSA", "ECDHE_RSA")),
    }
)

OPENSSL_NAMES = {
    name: openssl_exchange + openssl_cipher
    for exchange, openssl_exchange in _EXCHANGES.items()
    for cipher, openssl_cipher in _CIPHERS.items()
    if (name := f"TLS_{exchange}_WITH_{cipher}") not in _NO_SUITES
}


class ChosenSuites(NamedTuple):
    """The suites of a list by version of TLS, with OpenSSL's names, in the order of the list."""

    tls_1_2: tuple[str, ...]
    tls_1_3: tuple[str, ...]


def chosen_suites(names: tuple[str, ...]) -> ChosenSuites:
    """Sorts the suites of ``ssl.cipher.suites`` by version.

    :raises ConfigError: if a suite is unknown.
    """
    unknown = [name for name in names if name not in OPENSSL_NAMES.keys() | TLS_1_3_SUITES | _SIGNALS]
    if unknown:
        raise ConfigError(
            f"Invalid value {', '.join(unknown)!r} for configuration ssl.cipher.suites: not a cipher suite that is "
            f"supported here; names are IANA's, for example TLS_AES_256_GCM_SHA384"
        )
    return ChosenSuites(
        tuple(OPENSSL_NAMES[name] for name in names if name in OPENSSL_NAMES),
        tuple(name for name in names if name in TLS_1_3_SUITES),
    )
