"""A small schema registry on 127.0.0.1 that speaks Confluent's REST protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote


class FakeRegistry:
    """
    :ivar asked: the paths that were asked for.
    :ivar login: the Authorization header that requests need; None to accept all requests.
    :ivar refused: the subjects that accept no further schema.
    :ivar broken: the HTTP status of all answers; None to answer as a registry does.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.login: str | None = None
        self.broken: int | None = None
        self.refused: set[str] = set()
        self._by_id: dict[int, dict] = {}
        self._subjects: dict[str, list[int]] = {}

    def register(self, schema: object, subject: str = "", kind: str = "AVRO", references: list | None = None) -> int:
        number = len(self._by_id) + 1
        text = schema if isinstance(schema, str) else json.dumps(schema)
        answer = {"schema": text, "id": number}
        if kind != "AVRO":
            answer["schemaType"] = kind
        if references:
            answer["references"] = references
        self._by_id[number] = answer
        self._subjects.setdefault(subject, []).append(number)
        return number

    def posted(self, path: str, body: dict, login: str | None) -> tuple[int, dict]:
        subject = unquote(path.strip("/").split("/")[1])
        if self.broken is not None or (self.login is not None and login != self.login):
            return self.answer(path, login)
        if subject in self.refused:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        known = [
            number for number in self._subjects.get(subject, ()) if self._by_id[number]["schema"] == body["schema"]
        ]
        return 200, {"id": known[0] if known else self.register(body["schema"], subject)}

    def answer(self, path: str, login: str | None) -> tuple[int, dict]:
        self.asked.append(path)
        if self.broken is not None:
            return self.broken, {"error_code": self.broken, "message": "broken"}
        if self.login is not None and login != self.login:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self._by_id:
                return 200, self._by_id[int(number)]
            case ["subjects", subject, "versions", version] if unquote(subject) in self._subjects:
                numbers = self._subjects[unquote(subject)]
                return 200, self._by_id[numbers[-1 if version == "latest" else int(version) - 1]]
        return 404, {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, answer = registry.answer(self.path, self.headers.get("Authorization"))
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            """Registers a schema, unless the subject has it."""
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = registry.posted(self.path, body, self.headers.get("Authorization"))
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing: requests are in ``asked``."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = FakeRegistry(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
