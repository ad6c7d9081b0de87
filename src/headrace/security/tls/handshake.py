"""A TLS handshake in memory, between two contexts of this process.

A broker checks with it that brokers which use the same settings trust each other, before any socket is opened.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext, SSLObject

#: A handshake takes three flights. More rounds than this are a mistake.
_MAX_ROUNDS = 20


def shake_hands(client: SSLContext, server: SSLContext, host: str | None = None) -> tuple[SSLObject, SSLObject]:
    """Returns the connected ends of client and server.

    :param host: the name of the server that the client checks, if the client's context checks it.
    :raises ssl.SSLError: if one side refuses the other.
    """
    import ssl

    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = set(ends)
    for _ in range(_MAX_ROUNDS):
        for end in ends:
            try:
                end.do_handshake()
                waiting.discard(end)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            break
    # In TLS 1.3 the client is done before the server has seen its certificate. A refusal arrives as an alert.
    with suppress(ssl.SSLWantReadError):
        ends[0].read(1)
    if waiting:
        raise ssl.SSLError("the handshake did not end")
    return ends
