"""Protects the connection and the znodes of a client of ZooKeeper, by settings. It reads key stores and login files.

The settings of TLS are Kafka's (``zookeeper.ssl.*``). In Kafka a login is a JAAS file of the Java process; here it is
``headrace.zookeeper.login``, ``user:password``, or a file with that text. Its scheme is ``digest`` (ZooKeeper's
addauth), or ``sasl`` (the mechanism DIGEST-MD5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.properties import ConfigError
from headrace.security.small_files import UnreadableFileError, read_small_text

if TYPE_CHECKING:
    from ssl import SSLContext

LOGIN, LOGIN_FILE, LOGIN_SCHEME = (
    "headrace.zookeeper.login",
    "headrace.zookeeper.login.file",
    "headrace.zookeeper.login.scheme",
)
DIGEST, SASL = "digest", "sasl"
SET_ACL = "zookeeper.set.acl"
_TLS = "zookeeper.ssl."
_TLS_NAMES = (
    "client.enable", "keystore.location", "keystore.password", "keystore.type", "truststore.location",
    "truststore.password", "truststore.type", "protocol", "enabled.protocols", "cipher.suites",
    "endpoint.identification.algorithm", "crl.enable", "ocsp.enable",
)  # fmt: skip
_NETTY, _NIO = "org.apache.zookeeper.ClientCnxnSocketNetty", "org.apache.zookeeper.ClientCnxnSocketNIO"
_SOCKET = "zookeeper.clientCnxnSocket"
#: The names of all settings that are read here.
SETTINGS = (LOGIN, LOGIN_FILE, LOGIN_SCHEME, SET_ACL, _SOCKET, *(_TLS + name for name in _TLS_NAMES))
#: The store types by the end of a file's name, as ZooKeeper detects them.
_STORE_TYPES = {".jks": "JKS", ".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}
_NOT_SUPPORTED = ("crl.enable", "ocsp.enable")
_MAX_LOGIN_BYTES = 8 * 1024


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The TLS context and the login of a connection. The default is neither."""

    #: ``user:password``, or None.
    login: str | None = field(default=None, repr=False)
    scheme: str = DIGEST
    #: The context of a TLS connection, or None for a plain connection.
    tls: SSLContext | None = field(default=None, repr=False)
    #: Whether new znodes get the lists of ``kafka_acls.py``.
    sets_acls: bool = False

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> ClientSecurity:
        """Takes values by Kafka's names, as text or typed. A missing name, or None, has the default.

        :raises ConfigError: if the settings contradict each other, or a file cannot be read.
        """
        login, scheme = _login(settings), _text(settings, LOGIN_SCHEME) or DIGEST
        if scheme not in (DIGEST, SASL):
            raise ConfigError(f"Invalid value {scheme!r} for configuration {LOGIN_SCHEME}: must be {DIGEST} or {SASL}")
        if login is not None and scheme == SASL and find_spec("puresasl") is None:
            raise ConfigError(
                f"{LOGIN_SCHEME}={SASL} needs the package pure-sasl; run pip install 'headrace[zookeeper-sasl]'"
            )
        tls = _tls_context(settings) if _is_true(settings, f"{_TLS}client.enable") else None
        sets_acls = _is_true(settings, SET_ACL)
        has_certificate = tls is not None and _text(settings, f"{_TLS}keystore.location") is not None
        if sets_acls and login is None and not has_certificate:
            raise ConfigError(
                f"{SET_ACL}=true needs an identity: set {LOGIN} or {LOGIN_FILE}, or TLS with "
                f"{_TLS}keystore.location. Without it, ZooKeeper rejects every new znode"
            )
        return cls(login, scheme, tls, sets_acls)


def _text(settings: Mapping[str, object], name: str) -> str | None:
    value = settings.get(name)
    return None if value is None else str(value).strip() or None


def _is_true(settings: Mapping[str, object], name: str) -> bool:
    text = (_text(settings, name) or "false").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"Invalid value {text!r} for configuration {name}: must be true or false")
    return text == "true"


def _login(settings: Mapping[str, object]) -> str | None:
    login, path = _text(settings, LOGIN), _text(settings, LOGIN_FILE)
    source = LOGIN
    if path is not None:
        if login is not None:
            raise ConfigError(f"Conflicting configuration: set only one of {LOGIN} and {LOGIN_FILE}")
        login, source = _login_of_file(Path(path)), f"{LOGIN_FILE} ({path})"
    if login is None:
        return None
    user, _, password = login.partition(":")
    if not user or not password:
        raise ConfigError(f"{source} does not have the form USER:PASSWORD")
    return login


def _login_of_file(path: Path) -> str:
    try:
        return read_small_text(path, _MAX_LOGIN_BYTES).strip()
    except UnreadableFileError as error:
        raise ConfigError(f"Cannot read {LOGIN_FILE} ({path}): {error}") from None


def _tls_context(settings: Mapping[str, object]) -> SSLContext:
    for name in _NOT_SUPPORTED:
        if _is_true(settings, _TLS + name):
            raise ConfigError(
                f"{_TLS}{name}=true is not supported: Headrace does not check whether certificates are revoked"
            )
    if (chosen := _text(settings, _SOCKET)) not in (None, _NETTY):
        raise ConfigError(f"Invalid value {chosen!r} for configuration {_SOCKET}: TLS needs {_NETTY}")
    from headrace.security.tls import TlsOptions, client_context

    values = {name.removeprefix("zookeeper."): value for name, value in settings.items() if name.startswith(_TLS)}
    for store in ("keystore", "truststore"):
        if values.get(f"ssl.{store}.type") is None and (location := _text(settings, f"{_TLS}{store}.location")):
            values[f"ssl.{store}.type"] = store_type_of(location, f"{_TLS}{store}.type")
    # As in ZooKeeper, the key has the password of its store, and only ssl.protocol is enabled by default.
    values["ssl.key.password"] = values.get("ssl.keystore.password")
    protocol = _text(settings, f"{_TLS}protocol") or "TLSv1.2"
    values["ssl.protocol"] = protocol
    values["ssl.enabled.protocols"] = values.get("ssl.enabled.protocols") or protocol
    algorithm = settings.get(f"{_TLS}endpoint.identification.algorithm")
    values["ssl.endpoint.identification.algorithm"] = "https" if algorithm is None else str(algorithm).strip().lower()
    try:
        return client_context(TlsOptions.from_settings(values))
    except ConfigError as error:
        raise ConfigError([f"TLS to ZooKeeper (zookeeper.ssl.*): {problem}" for problem in error.problems]) from None


def store_type_of(location: str, setting: str) -> str:
    """Returns the type of a store by the end of its file's name.

    :param setting: the setting that can say the type, too.
    :raises ConfigError: if the name says nothing.
    """
    found = _STORE_TYPES.get(Path(location).suffix.lower())
    if found is None:
        raise ConfigError(f"The type of {location} cannot be seen from its name; set {setting} to PEM, PKCS12 or JKS")
    return found
