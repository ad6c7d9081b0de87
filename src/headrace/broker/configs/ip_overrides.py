"""Reads ``max.connections.per.ip.overrides``: a list of HOST:COUNT.

As in Kafka, blanks around a host and around a count do not matter, and a host may be an address or a name. A name
counts for all of its addresses. A name without an address is refused: a limit would silently not be in force.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from headrace.properties import ConfigError
from headrace.security.ip_addresses import address_of, is_address

IP_OVERRIDES = "max.connections.per.ip.overrides"


def parse_overrides(text: str) -> Iterator[tuple[str, int]]:
    """Yields each host with its count.

    :raises ConfigError: if an item is not HOST:COUNT.
    """
    for item in filter(None, map(str.strip, text.split(","))):
        host, count = (part.strip() for part in item.rpartition(":")[::2])
        if not host or not count.isascii() or not count.isdigit():
            raise ConfigError(f"Invalid value {item!r} for configuration {IP_OVERRIDES}: must be HOST:COUNT")
        yield host.removeprefix("[").removesuffix("]"), int(count)


def has_names(text: str) -> bool:
    """Whether :func:`resolved_overrides` asks the resolver."""
    return not all(is_address(host) for host, _ in parse_overrides(text))


def resolved_overrides(text: str) -> dict[str, int]:
    """Returns the count of each address, as ``address_of`` writes it. It waits for the resolver if there are names.

    :raises ConfigError: if a host has no address.
    """
    return {address: count for host, count in parse_overrides(text) for address in _addresses(host)}


def _addresses(host: str) -> list[str]:
    if is_address(host):
        return [address_of(host)]
    try:
        found = socket.getaddrinfo(host.encode() if host.isascii() else host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"Invalid value for configuration {IP_OVERRIDES}: the host {host!r} has no address: {error}"
        ) from None
    return [address_of(str(address[0])) for *_, address in found]
