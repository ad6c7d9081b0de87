"""The options for security that all clients have, by Kafka's names.

:class:`SecurityOptions` is the part of every client's options that ``setup.py`` makes TLS and credentials from. The
client fails before it connects if the options do not fit together. An unknown protocol or mechanism never falls back to
another one. Options of TLS or SASL without ``security.protocol`` are an error: Kafka's default is PLAINTEXT, and a user
who sets a trust store does not expect plain text.

An option without a value (None, or an empty text) is as good as not given, with two exceptions. An empty
``ssl.endpoint.identification.algorithm`` turns off the check of the host's name. An empty ``security.protocol`` is
refused, as in Kafka: a template whose variable is not set must not lead to plain text. No option makes the client load
a class: options that name a Java class are refused, or compared with the names that we know.
"""

# ruff: noqa: RUF009  option() makes a dataclass field
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from headrace.client.option_types import option

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: Options that mean something to Java only, or to brokers only.
IGNORED = (
    "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation", "ssl.provider",
    "sasl.kerberos.", "sasl.login.refresh.", "sasl.oauthbearer.jwks.", "sasl.oauthbearer.expected.",
    "sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.jwt.validator.class",
)  # fmt: skip
_NO_CLASSES = "a client loads no classes; remove the option"
#: Options that are refused, with the values that are accepted and ignored.
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    # Kafka replaces ${file:...} in values. Here such a text would itself be the password, and be sent to the broker.
    "config.providers": ((), "a client replaces no ${...} in values; write the values themselves"),
    "security.providers": ((), _NO_CLASSES),
    "ssl.engine.factory.class": ((), _NO_CLASSES),
    "sasl.client.callback.handler.class": ((), _NO_CLASSES),
    "sasl.login.class": ((), _NO_CLASSES),
    "sasl.login.callback.handler.class": (
        ("OAuthBearerLoginCallbackHandler",),
        "a client loads no classes; for OAUTHBEARER set sasl_oauth_token_provider or "
        "sasl.oauthbearer.token.endpoint.url",
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"),
        "a client gets tokens from a file, by client credentials, or from sasl_oauth_token_provider",
    ),
    "sasl.oauthbearer.assertion.": ((), "assertions (JWT bearer grants) do not exist here; use client credentials"),
    "ssl.context": ((), "set ssl.truststore.location and ssl.keystore.location instead of an SSLContext"),
    "ssl.cafile": ((), "use ssl.truststore.location with ssl.truststore.type=PEM"),
    "ssl.ca.location": ((), "use ssl.truststore.location with ssl.truststore.type=PEM"),
    "ssl.certfile": ((), "use ssl.keystore.location with ssl.keystore.type=PEM"),
    "ssl.certificate.location": ((), "use ssl.keystore.location with ssl.keystore.type=PEM"),
    "ssl.keyfile": ((), "use ssl.keystore.location with ssl.keystore.type=PEM, a file with key and certificates"),
    "ssl.key.location": ((), "use ssl.keystore.location with ssl.keystore.type=PEM, a file with key and certificates"),
    "ssl.check.hostname": ((), "use ssl.endpoint.identification.algorithm"),
}
_STARTS = ("ssl.", "sasl.", "security.", "org.apache.kafka.sasl.", "config.providers")
#: The options whose empty text is a value.
_MAY_BE_EMPTY = ("security_protocol", "ssl_endpoint_identification_algorithm")


@dataclass(frozen=True, kw_only=True)
class SecurityOptions:
    """The identity of a client, and the brokers that the client trusts."""

    security_protocol: str = option("PLAINTEXT", "PLAINTEXT, SSL (TLS), SASL_PLAINTEXT, or SASL_SSL (SASL over TLS)")
    ssl_protocol: str = option("TLSv1.3", "the newest TLS version to use")
    ssl_enabled_protocols: tuple[str, ...] = option(("TLSv1.2", "TLSv1.3"), "the TLS versions to use")
    ssl_cipher_suites: tuple[str, ...] = option((), "the cipher suites to use; without it, OpenSSL's defaults")
    ssl_endpoint_identification_algorithm: str = option(
        "https", "https checks that the broker's certificate names the broker's host; empty: no check"
    )
    ssl_truststore_type: str = option("JKS", "the format of the trust store: PEM, PKCS12 or JKS")
    ssl_truststore_location: str | None = option(
        None, "a file with the certificates of the issuers to trust; without it, the issuers that the system trusts"
    )
    ssl_truststore_password: str | None = option(None, "the password of the trust store", is_secret=True)
    ssl_truststore_certificates: str | None = option(
        None, "the trusted certificates themselves, as PEM text, instead of a file", is_secret=True
    )
    ssl_keystore_type: str = option("JKS", "the format of the key store: PEM, PKCS12 or JKS")
    ssl_keystore_location: str | None = option(
        None, "a file with the client's key and certificate, if brokers ask for one"
    )
    ssl_keystore_password: str | None = option(None, "the password of the key store", is_secret=True)
    ssl_key_password: str | None = option(None, "the password of the key in the key store", is_secret=True)
    ssl_keystore_key: str | None = option(
        None, "the client's key itself, as PEM text, instead of a file", is_secret=True
    )
    ssl_keystore_certificate_chain: str | None = option(
        None, "the client's certificates themselves, as PEM text, instead of a file", is_secret=True
    )
    sasl_mechanism: str | None = option(
        None, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; needed for SASL_PLAINTEXT and SASL_SSL"
    )
    sasl_jaas_config: str | None = option(
        None, "the login as a JAAS line of Kafka: the login module with username and password", is_secret=True
    )
    sasl_username: str | None = option(None, "the user for PLAIN and SCRAM, instead of a JAAS line")
    sasl_password: str | None = option(None, "the password for PLAIN and SCRAM", is_secret=True)
    sasl_plain_username: str | None = option(None, "the same as sasl.username, as kafka-python calls it")
    sasl_plain_password: str | None = option(
        None, "the same as sasl.password, as kafka-python calls it", is_secret=True
    )
    sasl_oauth_token_provider: Any = option(
        None,
        "for OAUTHBEARER: a function, or an object with a method token(), that returns a token, or a token and the "
        "time at which it expires (in seconds since 1970); it runs on a thread, or it is a coroutine function",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = option(
        None, "for OAUTHBEARER: where to get tokens by client credentials; or file:/PATH, a file with a token"
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = option(
        None, "the id for client credentials, instead of clientId in the JAAS line"
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = option(
        None, "the secret for client credentials, instead of clientSecret in the JAAS line", is_secret=True
    )
    sasl_oauthbearer_scope: str | None = option(
        None, "the scope to ask for with client credentials, instead of scope in the JAAS line"
    )
    sasl_oauthbearer_header_urlencode: bool = option(
        False, "encode client id and secret for URLs before they are sent, as RFC 6749 says"
    )
    sasl_login_connect_timeout_ms: int = option(10_000, "how long connecting to the token endpoint may take")
    sasl_login_read_timeout_ms: int = option(10_000, "how long the token endpoint may take to answer")
    sasl_login_retry_backoff_ms: int = option(100, "the wait before the token endpoint is asked again after a failure")
    sasl_login_retry_backoff_max_ms: int = option(10_000, "the longest wait before the token endpoint is asked again")
    org_apache_kafka_sasl_oauthbearer_allowed_urls: tuple[str, ...] = option(
        (), "the URLs that sasl.oauthbearer.token.endpoint.url may have; Kafka has this as a system property"
    )


_FIELDS = frozenset(f.name for f in fields(SecurityOptions))


def is_about_security(name: str) -> bool:
    """Whether an option, by Kafka's name, is about security. Such an option is never dropped silently."""
    return name.startswith(_STARTS)


def refuse_unserved(options: Mapping[str, object]) -> None:
    """
    :param options: the options by Kafka's names.
    :raises ValueError: if an option asks for something that the clients do not have.
    """
    for name, value in options.items():
        refused = next((REFUSED[start] for start in REFUSED if name.startswith(start)), None)
        if refused is None or is_unset(value):
            continue
        accepted, advice = refused
        if str(value).rpartition(".")[2] not in accepted:
            raise ValueError(f"{name}: {advice}")


def is_unset(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def without_unset(options: Mapping[str, object]) -> dict[str, object]:
    """Leaves out options of security that have no value. The names are those of Python."""
    return {
        name: value
        for name, value in options.items()
        if name not in _FIELDS or not is_unset(value) or (name in _MAY_BE_EMPTY and value is not None)
    }


def check_security(values: dict[str, Any], servers: tuple[str, ...]) -> None:
    """Checks the options against each other, and writes ``security.protocol`` in upper case.

    :param values: the parsed options that were given, by the names of Python.
    :raises ValueError: if they do not fit together. The message has no secrets.
    """
    given = sorted(_dotted(name) for name in values.keys() & _FIELDS if values[name] not in ("", ()))
    if given and "security_protocol" not in values:
        raise ValueError(
            f"{', '.join(given)}: set security.protocol too, to one of {', '.join(PROTOCOLS)}; without it the "
            "connection would be plain text"
        )
    protocol = str(values.get("security_protocol", "PLAINTEXT")).strip().upper()
    if protocol not in PROTOCOLS:
        raise ValueError(f"security.protocol = {values['security_protocol']!r}: must be one of {', '.join(PROTOCOLS)}")
    values["security_protocol"] = protocol
    for server in servers:
        _check_listener_name(server, protocol)
    if protocol.startswith("SASL_"):
        from headrace.client.security.credentials import credentials_of

        credentials_of(SecurityOptions(**{name: value for name, value in values.items() if name in _FIELDS}))


def _check_listener_name(server: str, protocol: str) -> None:
    """Checks the listener name of a server, if the name is that of a protocol: ``SSL://host:9093``."""
    name, found, _ = server.rpartition("://")
    if found and name.strip().upper() in PROTOCOLS and name.strip().upper() != protocol:
        raise ValueError(
            f"bootstrap.servers: {server!r} is a {name} listener, and security.protocol is {protocol}: set "
            f"security.protocol to {name.strip().upper()}"
        )


def _dotted(name: str) -> str:
    return name.replace("_", ".")
