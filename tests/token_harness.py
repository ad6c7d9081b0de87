"""Makes tokens and key sets, good and bad, and serves tokens as a provider does."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

NOW_S = 1_800_000_000
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 600, "scope": "read write"}


@cache
def rsa_key(name: str = "rsa", bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_keys() -> list[dict[str, Any]]:
    return [
        {**RSAAlgorithm.to_jwk(rsa_key().public_key(), as_dict=True), "kid": "rsa", "use": "sig"},
        {**ECAlgorithm.to_jwk(ec_key().public_key(), as_dict=True), "kid": "ec"},
        {**OKPAlgorithm.to_jwk(ed_key().public_key(), as_dict=True), "kid": "ed"},
    ]


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys) or public_keys()}).encode()


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def signed(algorithm: str = "RS256", key_id: str | None = "rsa", key: Any = None, **claims: Any) -> str:
    """A token with these claims; None leaves a claim out."""
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    headers = {} if key_id is None else {"kid": key_id}
    return jwt.encode(given, rsa_key() if key is None else key, algorithm=algorithm, headers=headers)


def unsecured(header: object = None, **claims: Any) -> str:
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return f"{part(header or {'alg': 'none'})}.{part(given)}."


@contextmanager
def endpoint(*answers: Any) -> Iterator[tuple[str, list[Any]]]:
    """A token endpoint that gives these answers: a status, a body, and headers. The last one is given again.

    An answer may be a function that makes the answer. The endpoint's URL comes with a list of what it was asked.
    """
    asked: list[Any] = []
    given = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.path, self.headers["Authorization"], parse_qs(body)))
            made: Any = given.pop(0) if len(given) > 1 else given[0]
            status, content, *headers = made() if callable(made) else made
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(token: str = "a.b.c", **more: Any) -> tuple[int, bytes]:
    """The answer of a provider with a token."""
    return 200, json.dumps({"access_token": token, **more}).encode()
