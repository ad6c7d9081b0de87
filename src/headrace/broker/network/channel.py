"""Defines how the bytes of a connection move. A connection knows its channel only by this interface.

A channel receives bytes into the connection's frame reader, and sends the parts of answers. Bytes move on the event
loop's thread (``plain_channel.py``) or on a network thread (``tls_channel.py``). The connection does not notice the
difference: the channel calls the connection, and the connection calls the channel, on the loop's thread only.

The channel does not receive while the connection handles a request, because the request is a view of the frame
reader's buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.broker.network.answer_parts import Parts

if TYPE_CHECKING:
    from headrace.broker.network.connection import Connection


class Channel(Protocol):
    @property
    def local_address(self) -> tuple[str, int]: ...

    @property
    def is_established(self) -> bool:
        """Whether requests can arrive. The channel calls :meth:`Connection.established` when that becomes true."""

    @property
    def has_unread(self) -> bool:
        """Whether the client is known to have sent bytes that were not received yet."""

    def start(self, connection: Connection) -> None:
        """Receives from now on. If a frame has arrived, calls :meth:`Connection.take_request`; if bytes arrive during a
        request, :meth:`Connection.next_request_arrived`; if the client has gone, :meth:`Connection.close`."""

    def pause(self) -> None:
        """The request in progress has to wait: received bytes stay in the kernel meanwhile."""

    def resume(self) -> None:
        """The connection has no request: the channel receives again."""

    def send(self, parts: Parts) -> bool:
        """Sends the parts and removes them. Returns whether all were sent at once. If not, the channel calls
        :meth:`Connection.sent` when it has sent all parts, also the parts that were added meanwhile."""

    def close(self) -> None: ...


class ClosedChannel(Channel):
    """The channel of a connection that was closed. A handler may still be busy with the last request.

    A connection and its real channel refer to each other. A closed connection lets go of the real one, so that its
    buffers are freed at once, and not when the garbage collector runs.
    """

    local_address = ("", 0)
    is_established = False
    has_unread = False

    def start(self, connection: Connection) -> None:  # noqa: ARG002
        raise AssertionError("a closed connection does not start again")

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def send(self, parts: Parts) -> bool:  # noqa: ARG002  nobody receives them
        return False

    def close(self) -> None:
        pass


CLOSED = ClosedChannel()
