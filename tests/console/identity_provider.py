"""A fake OpenID provider: it serves its document, its keys, a login page without questions, and tokens for codes.

It checks what a provider checks: the client's secret, the redirect URL, that a code is used once, and PKCE.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from token_harness import key_set, signed

CLIENT, SECRET = "headrace-console", "console-secret"
WELL_KNOWN = "/.well-known/openid-configuration"


class IdentityProvider:
    """
    :ivar user: who logs in.
    :ivar document: changes of the document; claims: changes of the ID token; answer: changes of the token answer.
    :ivar asked: the paths that were asked for.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.user = "alice"
        self.document: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.answer: dict[str, Any] = {}
        self.asked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}

    def authorize(self, address: str) -> str:
        """Logs the user in, and returns the address that the browser is sent to."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], 'iss': self.url})}"

    def document_now(self) -> dict[str, Any]:
        names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        return {"issuer": self.url, **{name: f"{self.url}/{path}" for name, path in names.items()}, **self.document}

    def tokens(self, authorization: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self._codes.pop(form.get("code", ""), None)
        if authorization != f"Basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}":
            return 401, {"error": "invalid_client"}
        challenge = base64.urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        is_good = asked is not None and asked["code_challenge"] == challenge
        if not is_good or asked is None or asked["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now_s = int(time.time())
        times = {"iat": now_s, "exp": now_s + 600, "sub": self.user}
        mine = {**times, "iss": self.url, "aud": CLIENT, "nonce": asked["nonce"], **self.claims}
        access = signed(**times, aud="kafka")
        return 200, {"id_token": signed(**mine), "access_token": access, "token_type": "Bearer", **self.answer}


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.asked.append(self.path)
            if self.path.startswith("/authorize?"):
                self._send(303, b"", provider.authorize(self.path))
            elif self.path == WELL_KNOWN:
                self._send(200, json.dumps(provider.document_now()).encode())
            else:
                self._send(200, key_set())

        def do_POST(self) -> None:
            provider.asked.append(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            status, answer = provider.tokens(self.headers.get("Authorization", ""), form)
            self._send(status, json.dumps(answer).encode())

        def _send(self, status: int, content: bytes, location: str = "") -> None:
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = IdentityProvider(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def oauth_broker_config(keys_url: str) -> dict[str, object]:
    """The settings of a broker that takes the provider's access tokens, and has an authorizer."""
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys_url,
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": keys_url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }


def admin_token() -> str:
    now_s = int(time.time())
    return signed(sub="admin", aud="kafka", iat=now_s, exp=now_s + 600)
