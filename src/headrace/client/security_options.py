"""Refuses options that ask a client for security, because the clients have no TLS and no SASL yet.

A client that ignored ``ssl.truststore.location`` would connect in plain text, and its user would expect an encrypted
connection. An option without a value (None, or an empty string) asks for nothing and is accepted. A change that adds
TLS or SASL removes its options here.
"""

from __future__ import annotations

from collections.abc import Mapping

#: The prefixes of refused options, by Kafka's names.
REFUSED_STARTS = ("ssl.", "sasl.", "security.providers")
SERVED_PROTOCOLS = ("PLAINTEXT",)
_KNOWN_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_WHY = "the clients have no TLS and no SASL yet"


def asks_for_security(name: str) -> bool:
    """Whether an option is refused if it has a value."""
    return name.startswith(REFUSED_STARTS)


def refuse_security_options(options: Mapping[str, object]) -> None:
    """
    :param options: the options by Kafka's names.
    :raises ValueError: if an option asks for security. The message contains no values, because some are secrets.
    """
    refused = [name for name, value in options.items() if asks_for_security(name) and not _is_empty(value)]
    if refused:
        raise ValueError(
            f"{', '.join(refused)}: {_WHY}, and the connection would be plain text; remove "
            f"{'these options' if len(refused) > 1 else 'this option'} and connect to a PLAINTEXT listener"
        )


def served_protocol(value: str) -> str:
    """Parses ``security.protocol``, which may be in upper or lower case.

    :raises ValueError: if the clients do not support the protocol.
    """
    protocol = value.strip().upper()
    if protocol not in SERVED_PROTOCOLS:
        raise ValueError(f"security.protocol = {value!r}: must be {' or '.join(SERVED_PROTOCOLS)}; {_WHY}")
    return protocol


def check_listener_name(server: str) -> None:
    """Checks the listener name of a server, if there is one: ``PLAINTEXT://host:9092``.

    :raises ValueError: if the name is that of a protocol which the clients do not support.
    """
    name, found, _ = server.rpartition("://")
    if found and name.strip().upper() in _KNOWN_PROTOCOLS:
        try:
            served_protocol(name)
        except ValueError:
            raise ValueError(f"bootstrap.servers: {server!r} is a {name} listener, and {_WHY}") from None


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())
