"""The TLS session of one socket: handshake, decryption into a frame reader, encryption of the parts of answers.

OpenSSL works on buffers in memory (``ssl.MemoryBIO``), and this class moves the bytes between the buffers and the
socket. One ``recv`` then takes many TLS records, and one ``send`` gives many. OpenSSL on the socket itself needs two
``recv`` calls per record of 16 KiB and one ``send``: measured, 20 % more CPU per sent byte. OpenSSL releases the
interpreter lock while it encrypts, decrypts and computes handshakes.

Files of an answer are read and encrypted in large chunks. The kernel does not encrypt (``kernel_tls.py`` says why).

A session belongs to one thread at a time (``tls_channel.py``). The socket is non-blocking and watched for edges, so
each method goes on until the socket has or accepts no more bytes, its work is done, or it has moved
``BYTES_PER_TURN``: other connections of the thread get their turn then.

A hostile client can make bytes expensive: records of one byte, or requests for new keys (KeyUpdate). OpenSSL answers
such a request itself, which takes up to 40 µs. Everything that is not data counts as overhead, and a turn ends when it
had ``OVERHEAD_PER_TURN``. OpenSSL works on one chunk without a pause, so a chunk is small if the last one was not data.
A client that sends no data at all, or does not read the answers of OpenSSL, is disconnected.
"""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, cast

from headrace.broker.network.answer_parts import FilePart, Parts

if TYPE_CHECKING:
    from headrace.broker.network.answer_parts import Part
    from headrace.protocol.frames import FrameReader

#: The bytes that a connection may receive or send in one turn.
BYTES_PER_TURN = 512 * 1024
#: The bytes that are received and then decrypted, or encrypted and then sent, as one chunk. OpenSSL's buffer of the
#: connection keeps that size, so only large answers use the large chunk.
CHUNK_BYTES = 64 * 1024
LARGE_CHUNK_BYTES = 256 * 1024
#: While a large frame arrives, the selector reports the socket when this many bytes are there, not for each packet.
MIN_LOW_WATER_MARK = 16 * 1024
MAX_LOW_WATER_MARK = 64 * 1024
#: The largest record, with its header and what encryption adds.
_MAX_RECORD_BYTES = 17 * 1024
#: The bytes that are received at once from a connection that has not sent as much data yet.
FIRST_CHUNK_BYTES = 8 * 1024
#: The received bytes of one turn that may be other than data, or a part of a record. Then the turn ends. One chunk of
#: ``FIRST_CHUNK_BYTES`` reaches that: 300 requests for new keys, which take 12 ms, and 50 ms on a slow, busy machine.
OVERHEAD_PER_TURN = 6 * 1024
#: The bytes that a client may send before data is decrypted. A TLS record has up to 16 KiB, so more bytes without
#: data are no record that is on its way.
MAX_SILENT_BYTES = 64 * 1024
#: The bytes of OpenSSL's own answers that may wait for a client that does not read.
MAX_UNREAD_BYTES = 64 * 1024
#: The number of receptions after which a handshake waits for its next turn.
_RECEPTIONS_PER_HANDSHAKE_TURN = 4


class Turn(Enum):
    """How a turn of a session has ended."""

    #: The work is done: a frame is complete, everything is sent, the handshake is finished.
    DONE = auto()
    #: The socket has no more bytes, or accepts no more. The selector reports when that changes.
    WAITS = auto()
    #: The turn was long enough. The thread continues after it has served others.
    MORE = auto()


class EndOfStream(Exception):
    """The client has closed its side."""


class HostileClient(OSError):
    """The client only keeps OpenSSL busy. The message says how."""


class TlsSession:
    __slots__ = (
        "_chunk_bytes", "_current", "_data_bytes", "_incoming", "_is_ending", "_low_water_mark", "_outgoing",
        "_overhead_bytes", "_silent_bytes", "_socket", "_tls", "_unsent", "is_drained",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        #: Encrypted bytes that the socket has not accepted yet.
        self._unsent = memoryview(b"")
        #: The part of the answer that is being encrypted.
        self._current: Part | None = None
        #: Whether the socket had no more bytes when it was read last. The network thread alone uses it.
        self.is_drained = True
        #: Whether the client has closed its side, or the connection is broken. There is no edge for the end then.
        self._is_ending = False
        self._low_water_mark = 1
        #: The size of the last reception, and how much data was decrypted since then.
        self._chunk_bytes = self._data_bytes = 0
        #: The bytes that were not data, or not yet: in this turn, and since the last data.
        self._overhead_bytes = self._silent_bytes = 0

    # -- handshake

    def shake_hands(self, buffer: memoryview) -> Turn:
        """Continues the handshake.

        :raises ssl.SSLError: if the handshake fails. The client gets an alert.
        :raises EndOfStream: if the client leaves.
        """
        for _ in range(_RECEPTIONS_PER_HANDSHAKE_TURN):
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if not self._flush() or not self._receive(buffer[:FIRST_CHUNK_BYTES]):
                    return Turn.WAITS
            except ssl.SSLError:
                self._flush()
                raise
            else:
                self._flush()  # what the socket does not accept now is sent before the first answer
                # A client that uses Nagle's algorithm sends its first request when its last flight is acknowledged.
                # Without session tickets there is nothing to send that carries the acknowledgement: 40 ms.
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                return Turn.DONE
        return Turn.MORE

    def peer_certificate(self) -> bytes | None:
        """Returns the certificate of the client in DER; None if the client has sent none."""
        return self._tls.getpeercert(binary_form=True)

    # -- in

    def readable(self, *, is_ending: bool) -> None:
        """The selector has reported bytes, or the end of the stream."""
        self.is_drained = False
        self._is_ending = self._is_ending or is_ending

    @property
    def has_undecrypted(self) -> bool:
        return bool(self._incoming.pending or self._tls.pending())

    def receive(self, frames: FrameReader, buffer: memoryview, *, max_bytes: int = BYTES_PER_TURN) -> Turn:
        """Receives and decrypts until at least one frame is complete.

        :param buffer: where encrypted bytes are received; it is free again when the method returns.
        :raises ssl.SSLError: if the bytes are not valid.
        :raises HostileClient: if the client must be disconnected.
        :raises EndOfStream: if the client has closed its side.
        """
        left_bytes = max_bytes
        self._overhead_bytes = 0
        while not self._decrypt(frames):
            if left_bytes <= 0 or self._overhead_bytes >= OVERHEAD_PER_TURN:
                return Turn.MORE
            is_data = self._chunk_bytes >= FIRST_CHUNK_BYTES and self._data_bytes * 2 >= self._chunk_bytes
            if not self._receive(buffer[: CHUNK_BYTES if is_data else FIRST_CHUNK_BYTES]):
                self._wait_for(frames.missing_bytes - _MAX_RECORD_BYTES)
                return Turn.WAITS
            left_bytes -= self._chunk_bytes
        self._wait_for(1)
        return Turn.DONE

    def _wait_for(self, certain_bytes: int) -> None:
        """Lets the selector report the socket only when many bytes are there.

        :param certain_bytes: how many bytes the client will send before it waits for an answer. OpenSSL may have the
            first part of a record already.
        """
        mark = 1 if certain_bytes < MIN_LOW_WATER_MARK else min(certain_bytes, MAX_LOW_WATER_MARK)
        if mark != self._low_water_mark:
            self._low_water_mark = mark
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)

    def _decrypt(self, frames: FrameReader) -> bool:
        """Decrypts what was received. Returns whether a frame is complete."""
        incoming = self._incoming
        has_frame = frames.has_frame()
        while (pending_bytes := incoming.pending) or self._tls.pending():
            # Small requests that arrived together are decrypted together; a large one is not followed by others.
            room = frames.spare() if has_frame else frames.room()
            if not room:
                break
            try:
                size_bytes = self._decrypt_into(room, len(room) if has_frame else frames.missing_bytes)
            except ssl.SSLWantReadError:
                self._count(pending_bytes - incoming.pending, 0)
                break
            except ssl.SSLError:
                self._flush()
                raise
            if size_bytes == 0:
                if has_frame:
                    break
                raise EndOfStream
            frames.received(size_bytes)
            has_frame = has_frame or frames.has_frame()
            self._count(pending_bytes - incoming.pending, size_bytes)
            if self._overhead_bytes >= OVERHEAD_PER_TURN:
                break
        return has_frame

    def _decrypt_into(self, room: memoryview, wanted_bytes: int) -> int:
        """Decrypts one record after the other, until the wanted bytes are there. Returns how many; 0: the stream ended.

        A client may send many small records: librdkafka sends one for each value that it does not copy.

        :raises ssl.SSLError: if the bytes are not valid, or are less than a record.
        """
        read, incoming = self._tls.read, self._incoming
        got_bytes = cast(int, read(len(room), room))
        while 0 < got_bytes < wanted_bytes and incoming.pending:
            try:
                size_bytes = cast(int, read(len(room), room[got_bytes:]))
            except ssl.SSLWantReadError:
                break
            if size_bytes == 0:
                break
            got_bytes += size_bytes
        return got_bytes

    def _count(self, received_bytes: int, data_bytes: int) -> None:
        """Counts what OpenSSL has taken, and how much of it was data. Sends answers of OpenSSL, such as a new key.

        :raises HostileClient: if the client only keeps OpenSSL busy.
        """
        self._data_bytes += data_bytes
        # A record of which at least a half is data has no overhead. Data may come later than the bytes of its record.
        self._overhead_bytes = max(0, self._overhead_bytes + received_bytes - 2 * data_bytes)
        self._silent_bytes = 0 if data_bytes else self._silent_bytes + received_bytes
        if self._silent_bytes > MAX_SILENT_BYTES:
            raise HostileClient(f"it has sent {self._silent_bytes} bytes of TLS without data")
        if not self._flush() and len(self._unsent) + self._outgoing.pending > MAX_UNREAD_BYTES:
            raise HostileClient("it does not read the answers to its TLS messages")

    def _receive(self, buffer: memoryview) -> bool:
        """Receives encrypted bytes. Returns False if there are none at present."""
        if self.is_drained:
            return False
        try:
            size_bytes = self._socket.recv_into(buffer)
        except BlockingIOError:
            self.is_drained = True
            return False
        if size_bytes == 0:
            raise EndOfStream
        self.is_drained = size_bytes < len(buffer) and not self._is_ending
        self._chunk_bytes, self._data_bytes = size_bytes, 0
        self._incoming.write(buffer[:size_bytes])
        return True

    # -- out

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send(self, parts: Parts, buffer: memoryview) -> Turn:
        """Encrypts and sends the parts, and removes them.

        :param buffer: where files are read; it is free again when the method returns.
        :raises OSError: if the connection is broken, or a file has become shorter.
        """
        left_bytes = BYTES_PER_TURN
        while True:
            if not self._flush():
                return Turn.WAITS
            if self._current is None and not parts:
                return Turn.DONE
            if left_bytes <= 0:
                return Turn.MORE
            left_bytes -= self._encrypt(parts, buffer)

    def _encrypt(self, parts: Parts, buffer: memoryview) -> int:
        """Encrypts one chunk. Returns its size."""
        free_bytes = chunk_bytes = CHUNK_BYTES
        while free_bytes > 0:
            part = self._current
            if part is None:
                if not parts:
                    break
                part = self._current = parts.popleft()
            if free_bytes == chunk_bytes and _left_bytes(part) >= LARGE_CHUNK_BYTES:
                free_bytes = chunk_bytes = LARGE_CHUNK_BYTES
            if isinstance(part, FilePart):
                data = _read(part, buffer[:free_bytes])
                part.advance(len(data))
                self._current = part if part.left_bytes else None
            else:
                data = part[:free_bytes]
                self._current = part[free_bytes:] if len(part) > free_bytes else None
            written_bytes = self._tls.write(data)
            assert written_bytes == len(data), "a buffer in memory accepts everything"
            free_bytes -= written_bytes
        self._unsent = memoryview(self._outgoing.read())
        return chunk_bytes - free_bytes

    def _flush(self) -> bool:
        """Sends encrypted bytes. Returns whether all were sent."""
        while True:
            unsent = self._unsent
            if not unsent:
                if not self._outgoing.pending:
                    return True
                unsent = self._unsent = memoryview(self._outgoing.read())
            try:
                sent_bytes = self._socket.send(unsent)
            except BlockingIOError:
                return False
            self._unsent = unsent[sent_bytes:]

    # -- end

    def close(self) -> None:
        """Says goodbye, if the socket accepts the bytes at once, and closes the socket."""
        with suppress(OSError, ValueError):  # ssl.SSLError is an OSError
            if not self._unsent:
                self._tls.unwrap()  # writes our close_notify, and wants to read that of the client
        with suppress(OSError):
            self._flush()
        self._socket.close()


def _left_bytes(part: Part) -> int:
    return part.left_bytes if isinstance(part, FilePart) else len(part)


def _read(part: FilePart, room: memoryview) -> memoryview:
    room = room[: part.left_bytes]
    read_bytes = os.preadv(part.source.fileno(), [room], part.position)
    if read_bytes == 0:
        raise OSError(f"{part.source} became shorter while it was sent")
    return room[:read_bytes]
