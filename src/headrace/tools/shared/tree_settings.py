"""The settings of ``headrace zookeeper``, under the names of ZooKeeper's ``zoo.cfg``.

In ``zoo.cfg`` a name that ZooKeeper does not know itself becomes the Java property ``zookeeper.NAME``. So a name may
have that prefix here, too. A setting that Headrace does not know is an error, because it may be one that protects.

The secure port is for TLS. As in ZooKeeper, a client must show a certificate there unless ``ssl.clientAuth`` says
otherwise, and its subject is the client's identity of the scheme ``x509``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.coordination.client.client_security import store_type_of
from headrace.coordination.server.four_letter_words import ALWAYS, enabled_words
from headrace.coordination.server.service import DEFAULT_MAX_CONNECTIONS_PER_ADDRESS
from headrace.properties import ConfigError
from headrace.security.small_files import UnreadableFileError, read_small_text

if TYPE_CHECKING:
    from ssl import SSLContext

logger = getLogger(__name__)

SUPER_DIGEST = "DigestAuthenticationProvider.superDigest"
_X509_PROVIDER = "authProvider.x509"
_WORDS = "4lw.commands.whitelist"
_MAX_PASSWORD_BYTES = 8 * 1024

#: Each setting, and what it does. The table in docs/zookeeper.md has the same rows.
SETTINGS = {
    "dataDir": "the data folder (`--data`)",
    "clientPort": "the port (`--listen`)",
    "clientPortAddress": "the address of the port; by default all addresses",
    "secureClientPort": "the port for TLS (`--secure-listen`)",
    "secureClientPortAddress": "the address of the port for TLS; by default all addresses",
    "maxClientCnxns": "the number of connections per address, by default 60; 0: no limit",
    "tickTime": "milliseconds of a tick (`--tick-time`)",
    _WORDS: "the four-letter words that are answered, beside `srvr`; `*`: all",
    SUPER_DIGEST: "the super user, who may do everything: `USER:BASE64(SHA1(USER:PASSWORD))`",
    "ssl.keyStore.location": "the key store of the server, PEM, PKCS12 or JKS",
    "ssl.keyStore.password": "its password, and the password of the key",
    "ssl.keyStore.passwordPath": "a file with that password",
    "ssl.keyStore.type": "PEM, PKCS12 or JKS; by default by the end of the file's name",
    "ssl.trustStore.location": "the certificates that clients' certificates are checked against",
    "ssl.trustStore.password": "the password of that store",
    "ssl.trustStore.passwordPath": "a file with that password",
    "ssl.trustStore.type": "PEM, PKCS12 or JKS; by default by the end of the file's name",
    "ssl.protocol": "the TLS version, by default TLSv1.3",
    "ssl.enabledProtocols": "the TLS versions, by default TLSv1.2 and TLSv1.3",
    "ssl.ciphersuites": "the cipher suites, by default those of OpenSSL",
    "ssl.clientAuth": "`need` (the default), `want` or `none`: whether clients show a certificate",
}
#: Settings that only have one value here.
_FIXED = {
    _X509_PROVIDER: "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
    "ssl.crl": "false",
    "ssl.ocsp": "false",
    "ssl.clientHostnameVerification": "false",
}
#: Settings of servers that have nothing to do with who may do what.
_IGNORED = (
    "admin.enableServer", "admin.serverPort", "autopurge.purgeInterval", "autopurge.snapRetainCount", "dataLogDir",
    "forceSync", "initLimit", "serverCnxnFactory", "snapCount", "syncLimit",
)  # fmt: skip
_PREFIX = "zookeeper."
_CLIENT_AUTH = {"need": "required", "want": "requested", "none": "none"}

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """The settings of a server. None stands for a setting that is not set."""

    data: Path | None = None
    address: Address | None = None
    secure_address: Address | None = None
    tick_time_ms: int | None = None
    super_digest: str | None = field(default=None, repr=False)
    tls: SSLContext | None = field(default=None, repr=False)
    max_connections_per_address: int = DEFAULT_MAX_CONNECTIONS_PER_ADDRESS
    four_letter_words: frozenset[bytes] = ALWAYS

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TreeSettings:
        """:raises ConfigError: if a setting is unknown, a value is wrong, or a key store cannot be read."""
        settings = _known(properties)
        super_digest = settings.get(SUPER_DIGEST)
        if super_digest is not None and not all(super_digest.partition(":")):
            raise ConfigError(f"{SUPER_DIGEST} is not USER:HASH")
        limit = _number(settings, "maxClientCnxns", 0, 2**31 - 1)
        return cls(
            Path(settings["dataDir"]) if "dataDir" in settings else None,
            _address(settings, "clientPort"),
            _address(settings, "secureClientPort"),
            _number(settings, "tickTime", 1, 2**31 - 1),
            super_digest,
            _tls(settings) if "ssl.keyStore.location" in settings else None,
            DEFAULT_MAX_CONNECTIONS_PER_ADDRESS if limit is None else limit,
            _words(settings),
        )


def _known(properties: Mapping[str, str]) -> dict[str, str]:
    settings = {name.removeprefix(_PREFIX): value.strip() for name, value in properties.items()}
    settings = {name: value for name, value in settings.items() if name not in _IGNORED and value}
    for name, value in settings.items():
        if name in _FIXED and value != _FIXED[name]:
            raise ConfigError(f"{name}={value} is not supported; leave it out, or set it to {_FIXED[name]}")
    unknown = [name for name in settings if name not in SETTINGS and name not in _FIXED]
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)}: not a setting of headrace zookeeper, which has {', '.join(sorted(SETTINGS))}"
        )
    return settings


def _words(settings: Mapping[str, str]) -> frozenset[bytes]:
    try:
        return enabled_words(settings.get(_WORDS, ""))
    except ValueError as error:
        raise ConfigError(f"Invalid value for configuration {_WORDS}: {error}") from None


def _number(settings: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    text = settings.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or not low <= int(text) <= high:
        raise ConfigError(f"Invalid value {text!r} for configuration {name}: must be between {low} and {high}")
    return int(text)


def _address(settings: Mapping[str, str], name: str) -> Address | None:
    port = _number(settings, name, 0, 65_535)
    return None if port is None else (settings.get(f"{name}Address", ""), port)


def _tls(settings: Mapping[str, str]) -> SSLContext:
    from headrace.security.tls import TlsOptions, server_context

    client_auth = settings.get("ssl.clientAuth", "need").lower()
    if client_auth not in _CLIENT_AUTH:
        raise ConfigError(f"Invalid value {client_auth!r} for configuration ssl.clientAuth: must be need, want or none")
    key_password = _password(settings, "ssl.keyStore")
    values = {
        "ssl.keystore.location": settings.get("ssl.keyStore.location"),
        "ssl.keystore.password": key_password,
        "ssl.key.password": key_password,
        "ssl.keystore.type": _store_type(settings, "ssl.keyStore"),
        "ssl.truststore.location": settings.get("ssl.trustStore.location"),
        "ssl.truststore.password": _password(settings, "ssl.trustStore"),
        "ssl.truststore.type": _store_type(settings, "ssl.trustStore"),
        "ssl.protocol": settings.get("ssl.protocol"),
        "ssl.enabled.protocols": settings.get("ssl.enabledProtocols"),
        "ssl.cipher.suites": settings.get("ssl.ciphersuites"),
        "ssl.client.auth": _CLIENT_AUTH[client_auth],
    }
    context = server_context(TlsOptions.from_settings(values))
    if client_auth != "none" and "ssl.trustStore.location" not in settings:
        logger.warning(
            "ssl.clientAuth is %s, and there is no trust store: the server accepts every client with a certificate of "
            "an authority that this system trusts. Set ssl.trustStore.location",
            client_auth,
        )
    return context


def _password(settings: Mapping[str, str], store: str) -> str | None:
    path = settings.get(f"{store}.passwordPath")
    if path is None:
        return settings.get(f"{store}.password")
    try:
        lines = read_small_text(Path(path), _MAX_PASSWORD_BYTES).splitlines()
    except UnreadableFileError as error:
        raise ConfigError(f"Cannot read {store}.passwordPath ({path}): {error}") from None
    if not lines:
        raise ConfigError(f"Cannot read {store}.passwordPath ({path}): it is empty")
    return lines[0]


def _store_type(settings: Mapping[str, str], store: str) -> str | None:
    location, given = settings.get(f"{store}.location"), settings.get(f"{store}.type")
    if given is not None or location is None:
        return given
    return store_type_of(location, f"{store}.type")
