"""Sends queries to ``headrace views serve``, and reads the answers as Arrow streams.

Each query has a connection of its own, which ends with its answer. A secret is sent only over TLS, or to this machine.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.views.answers import Answer, AsOf
from headrace.views.errors import (
    DifferentOffsets,
    NotReadOnly,
    NotServed,
    QueryError,
    QueryTimeout,
    ServerError,
    Unauthorized,
    Unreachable,
    ViewsError,
)

DEFAULT_TIMEOUT_MS = 300_000
_CONNECT_S = 10.0
#: The server ends a query at its timeout. This is for a server that does not.
_GRACE_S = 30.0
_MAX_SMALL_BYTES = 16 << 20
_READ_BYTES = 1 << 20
_STREAM = "application/vnd.apache.arrow.stream"
_KINDS: dict[str, type[QueryError]] = {
    kind.kind: kind for kind in (QueryError, NotReadOnly, QueryTimeout, NotServed, DifferentOffsets)
}
_USE = "use http://HOST:PORT or https://HOST:PORT"


def connect(
    url: str,
    *,
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    ca_file: str | Path | None = None,
    insecure: bool = False,
) -> Connection:
    """A connection to ``headrace views serve``. It is opened with the first query.

    :param url: ``http://HOST:PORT`` or ``https://HOST:PORT``; it may contain ``USER:PASSWORD@``.
    :param token: the bearer token of the server.
    :param ca_file: the certificates (PEM) that sign the server's; by default those of the system.
    :param insecure: send a secret to another machine also without TLS.
    :raises ViewsError: if the URL cannot be used, or a secret would not be protected.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ViewsError(
            f"this is not the URL of a server of views: {_USE}; the views of a folder are read by "
            "headrace.pipeline.Project(FOLDER).query(SQL)"
        )
    user = user if user is not None else unquote(parts.username or "")
    password = password if password is not None else unquote(parts.password or "")
    if token and (user or password):
        raise ViewsError("give a token, or a user with a password, not both")
    if bool(user) != bool(password):
        raise ViewsError("a user needs a password, and a password needs a user")
    if (token or user) and parts.scheme == "http" and not insecure and not _is_this_machine(parts.hostname):
        raise ViewsError(f"{parts.hostname} is another machine: use https, or insecure=True if the network is trusted")
    context = None
    if parts.scheme == "https":
        try:
            context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        except (OSError, ssl.SSLError) as error:
            raise ViewsError(f"{ca_file} cannot be used as certificates of an authority: {error}") from None
    headers = {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    elif user:
        headers["Authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
    return Connection(parts.hostname, parts.port, parts.path.rstrip("/"), context, headers)


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Connection:
    """A connection to the server of the views. Any thread may call its methods. Use :func:`connect`."""

    def __init__(
        self, host: str, port: int | None, path: str, tls: ssl.SSLContext | None, headers: Mapping[str, str]
    ) -> None:
        self._host, self._port, self._path, self._tls, self._headers = host, port, path, tls, dict(headers)
        self.name = f"{'http' if tls is None else 'https'}://{host}{'' if port is None else f':{port}'}{path}"

    def __repr__(self) -> str:
        return f"<Connection to {self.name}>"

    def query(
        self,
        sql: str,
        *,
        limit: int | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        compression: str | None = None,
        same_offsets: bool = False,
    ) -> Answer:
        """Runs one statement that reads.

        :param limit: at most this many rows; None for all rows.
        :param timeout_ms: how long the server may work for the answer, up to 300,000.
        :param compression: ``lz4`` or ``zstd``, for slow networks.
        :param same_offsets: raise DifferentOffsets if the views of the statement count other records of a common topic.
        :raises QueryError: if the statement is wrong, would change something, or takes too long.
        :raises Unauthorized: if the server does not accept the token or the password.
        :raises Unreachable: if the server does not answer.
        :raises ViewsError: if there is another problem.
        """
        try:
            import pyarrow as pa  # type: ignore[import-untyped]
        except ImportError as error:
            raise ViewsError(f"reading views needs pyarrow: pip install 'headrace[arrow]' ({error})") from None
        asked = {
            "sql": sql,
            "format": "arrow",
            "limit": "all" if limit is None else limit,
            "timeout_ms": timeout_ms,
            "compression": compression or "none",
            "same_offsets": same_offsets,
        }
        connection, response = self._ask("POST", "/query", json.dumps(asked).encode(), timeout_ms / 1000 + _GRACE_S)
        try:
            if response.getheader("Content-Type") != _STREAM:
                raise Unreachable(f"{self.name} is not a server of views that has Arrow")
            as_of = [AsOf.from_json(each) for each in json.loads(response.getheader("Headrace-As-Of") or "[]")]
            is_truncated = response.getheader("Headrace-Truncated") == "true"
            reader = pa.ipc.open_stream(pa.input_stream(response, buffer_size=_READ_BYTES))
        except OSError as error:
            connection.close()
            raise Unreachable(f"the answer of {self.name} broke off: {error}; run the query again") from None
        except (ValueError, KeyError, HTTPException) as error:
            connection.close()
            raise Unreachable(f"the answer of {self.name} cannot be read: {error}") from None
        except ViewsError:
            connection.close()
            raise

        def check_end() -> None:
            response.read(1)
            if response.length:  # Arrow takes the end of the bytes for the end of the stream
                raise OSError(f"{response.length} bytes are missing")

        return Answer(reader, as_of, is_truncated=is_truncated, close=connection.close, check_end=check_end)

    def views(self) -> list[dict[str, Any]]:
        """The views that the server has: name, columns, version, and up to which offsets they count."""
        connection, response = self._ask("GET", "/views", None, _GRACE_S)
        try:
            found: list[dict[str, Any]] = json.loads(response.read(_MAX_SMALL_BYTES))["views"]
        except (OSError, ValueError, KeyError, TypeError, HTTPException) as error:
            raise Unreachable(f"the answer of {self.name} cannot be read: {error}") from None
        finally:
            connection.close()
        return found

    def _ask(self, method: str, path: str, body: bytes | None, wait_s: float) -> tuple[HTTPConnection, HTTPResponse]:
        connection = self._connection()
        try:
            connection.connect()
            connection.sock.settimeout(wait_s)
            connection.request(method, f"{self._path}{path}", body, {**self._headers, "Accept": f"{_STREAM}, */*"})
            response = connection.getresponse()
        except (OSError, HTTPException, ValueError) as error:
            connection.close()
            reason = "it does not answer in time" if isinstance(error, socket.timeout) else error
            raise Unreachable(f"cannot reach {self.name}: {reason}") from None
        if response.status != 200:
            try:
                raise self._error(response)
            finally:
                connection.close()
        return connection, response

    def _connection(self) -> HTTPConnection:
        if self._tls is None:
            return HTTPConnection(self._host, self._port, timeout=_CONNECT_S)
        return HTTPSConnection(self._host, self._port, timeout=_CONNECT_S, context=self._tls)

    def _error(self, response: HTTPResponse) -> ViewsError:
        try:
            told = json.loads(response.read(_MAX_SMALL_BYTES))
            text, kind, position = str(told["error"]), str(told["kind"]), told.get("position")
        except (OSError, ValueError, KeyError, TypeError, HTTPException):
            return Unreachable(f"{self.name} answers with status {response.status}: is it a server of views?")
        if response.status == 401:
            return Unauthorized(f"{self.name}: {text}; give the token or the password of the server")
        if kind in _KINDS:
            failed = _KINDS[kind](text)
            failed.position = position if isinstance(position, int) else None
            return failed
        if kind == "bad_request":
            return ViewsError(text)
        unable = ServerError(text)
        unable.kind = kind
        return unable
