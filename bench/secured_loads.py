"""Defines the loads of ``security.py`` and what they measure."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import loads
from loads import Latency, Rate
from secured_servers import SCRAM, TLS, Secured
from servers import java

from headrace import Admin
from headrace.client.admin.scram import UserScramCredentialUpsertion
from headrace.protocol.api import Api
from headrace.security.sasl.mechanism import SCRAM_SHA_256
from headrace.security.sasl.scram_client import ScramClient
from headrace.testing import RawClient

#: Two clients at a time keep the broker busy: one computes while the other waits.
_CLIENTS = 2
_USER, _PASSWORD = "alice", "secret"


def consume_by_java(secured: Secured, topic: str, count: int) -> Rate:
    """Apache's own consumer-perf-test. The rate is that of its fetching, without the start of Java and the join."""
    with tempfile.TemporaryDirectory() as folder:
        command = java(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", f"127.0.0.1:{secured.ports[TLS]}", "--topic", topic, "--num-records", str(count)),
            *("--command-config", str(secured.java_settings(Path(folder))), "--hide-header"),
            *("--group", f"perf-{time.monotonic_ns()}", "--timeout", "60000"),
            options=("-Xmx512m",),
        )
        cpu = secured.cpu_seconds
        output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    fields = output.strip().splitlines()[-1].split(", ")
    got, fetch_ms = int(fields[4]), float(fields[7])
    assert got >= count, output
    return Rate(got / fetch_ms * 1000, secured.cpu_seconds - cpu)


def handshakes(secured: Secured, listener: str, count: int) -> Rate:
    """Opens connections one after the other, each with a full handshake and one request. The CPU is that of one."""
    cpu, started = secured.cpu_seconds, time.perf_counter()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        for done in [pool.submit(_shake_hands, secured, listener, count // _CLIENTS) for _ in range(_CLIENTS)]:
            done.result()
    elapsed = time.perf_counter() - started
    return Rate(count / elapsed, (secured.cpu_seconds - cpu) / count * 1e6)


def _shake_hands(secured: Secured, listener: str, count: int) -> None:
    context = secured.context(listener)
    api_versions = bytes.fromhex("0000000a 0012 0000 00000007 ffff".replace(" ", ""))
    for _ in range(count):
        sock = socket.create_connection(("127.0.0.1", secured.ports[listener]))
        with context.wrap_socket(sock) as tls:
            # In TLS 1.3 the client is done before the broker has checked the client's certificate.
            tls.sendall(api_versions)
            assert len(tls.recv(4)) == 4


def make_user(secured: Secured) -> None:
    """Gives both brokers the user of :func:`scram_logins`."""
    with Admin(bootstrap_servers=f"127.0.0.1:{secured.server.port}") as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(_USER, SCRAM_SHA_256, _PASSWORD)]).all()


def scram_logins(secured: Secured, count: int) -> Rate:
    """Opens connections one after the other, each with a whole login. The CPU is that of one login."""
    cpu, started = secured.cpu_seconds, time.perf_counter()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        for done in [pool.submit(_log_in, secured, count // _CLIENTS) for _ in range(_CLIENTS)]:
            done.result()
    elapsed = time.perf_counter() - started
    return Rate(count / elapsed, (secured.cpu_seconds - cpu) / count * 1e6)


def _log_in(secured: Secured, count: int) -> None:
    """The client computes its salted password once (``scram.salted_password``), as clients that log in often do."""
    for _ in range(count):
        with RawClient(f"127.0.0.1:{secured.ports[SCRAM]}") as client:
            mechanism = ScramClient(SCRAM_SHA_256, _USER, _PASSWORD)
            client.ask(Api.SASL_HANDSHAKE, 1, mechanism=mechanism.name)
            token: bytes | None = mechanism.first()
            while token is not None:
                token = mechanism.step(client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=token).auth_bytes)


def one_record_acked(secured: Secured, topic: str, count: int) -> Latency:
    sock = socket.create_connection(("127.0.0.1", secured.ports[TLS]))
    with secured.context(TLS).wrap_socket(sock) as tls:
        return loads.acks_on(tls, topic, count)
