"""Sends a request to the leader, and returns the leader's answer.

The header ``X-Forward: false`` says that a registry has sent the request. A registry that is not the leader refuses
such a request, so that requests do not circle while registries disagree about the leader.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from headrace.registry.cluster.membership import Identity
from headrace.registry.errors import forwarding_failed

FORWARD_HEADER = "x-forward"
_PASSED = ("authorization", "content-type", "accept")
_TIMEOUT_S = 25
_MAX_ANSWER_BYTES = 16 << 20
_THREADS = 16


class ForwardedAnswer(NamedTuple):
    status: int
    body: bytes


class Forwarder:
    """Connects to other registries."""

    def __init__(self, certificates: str = "") -> None:
        """
        :param certificates: a file with the certificates that those of other registries are checked against; empty:
            those of the system.
        """
        self._certificates = certificates
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="registry-forward")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def send(
        self, leader: Identity, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> ForwardedAnswer:
        """
        :param target: the path with its query, as the client sent it.
        :raises RegistryError: if the leader does not answer.
        """
        passed = {name: headers[name] for name in _PASSED if name in headers}
        passed[FORWARD_HEADER] = "false"
        work = asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: self._send(leader, method, target, passed, body)
        )
        try:
            return await work
        except (OSError, http.client.HTTPException) as error:
            raise forwarding_failed(f"the leader {leader.url} does not answer: {_reason(error)}") from None

    def _send(
        self, leader: Identity, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> ForwardedAnswer:
        connection = self._connection(leader)
        try:
            connection.request(method, target, body=body or None, headers=headers)
            answer = connection.getresponse()
            return ForwardedAnswer(answer.status, answer.read(_MAX_ANSWER_BYTES))
        finally:
            connection.close()

    def _connection(self, leader: Identity) -> http.client.HTTPConnection:
        if leader.scheme != "https":
            return http.client.HTTPConnection(leader.host, leader.port, timeout=_TIMEOUT_S)
        context = ssl.create_default_context(cafile=self._certificates or None)
        return http.client.HTTPSConnection(leader.host, leader.port, timeout=_TIMEOUT_S, context=context)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
