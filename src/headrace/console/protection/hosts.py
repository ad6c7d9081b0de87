"""Refuses requests whose ``Host`` is not a name of the console.

A page of another site can make a browser send requests to the console's address, under the site's own name, by changing
what its name resolves to (DNS rebinding). The browser then takes the answers for the site's own. The name in ``Host``
gives such a request away.
"""

from __future__ import annotations

from collections.abc import Iterable

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY = ("", "0.0.0.0", "::", "[::]")


class Hosts:
    """The names that the console answers to.

    A name without a port is good with every port, because a proxy may listen on another one.
    """

    def __init__(self, host: str, allowed: Iterable[str]) -> None:
        """
        :param host: the address that is served.
        :param allowed: further names, with or without a port.
        """
        served = f"[{host}]" if ":" in host and not host.startswith("[") else host
        names = {name.lower() for name in allowed}
        names.update(_LOOPBACK)
        if served not in _ANY:
            names.add(served.lower())
        self._names = frozenset(names)

    def allows(self, host: str) -> bool:
        host = host.lower()
        name, colon, port = host.rpartition(":")
        if not colon or "]" in port:
            name, port = host, ""
        if port and not (port.isascii() and port.isdecimal()):
            return False
        return name in self._names or host in self._names
