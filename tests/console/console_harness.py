"""A console for tests, and a visitor who reads its pages and fills in its forms."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any, Self

import httpx2

from headrace.console.application import build_application
from headrace.console.services import Services
from headrace.console.settings import Settings

BASE = "http://127.0.0.1:8080"


class ConsoleHarness:
    """A console, and one browser that keeps its cookies."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = Settings(**settings)
        self.services = Services.open(self.settings)
        self.application = build_application(self.services)
        self.browser = self.new_browser()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.browser.aclose()
        await self.services.close()

    def new_browser(self) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(self.application, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url=BASE)

    # -- reading

    async def get(self, path: str, **more: Any) -> httpx2.Response:
        return await self.browser.get(path, **more)

    async def page(self, path: str) -> str:
        """The HTML of a page that must exist."""
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def json(self, path: str, status: int = 200) -> Any:
        answer = await self.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    # -- changing

    async def token(self) -> str:
        return (await self.json("/api/session"))["csrf_token"]

    async def call(self, action: str, **fields: object) -> httpx2.Response:
        """Asks for a change by the JSON API."""
        headers = {"x-csrf-token": await self.token()}
        return await self.browser.post(f"/api/actions/{action}", json=fields, headers=headers)

    async def submit(self, action: str, **fields: str) -> httpx2.Response:
        """Posts a form as a browser does."""
        data = {"csrf_token": await self.token(), **fields}
        return await self.browser.post(f"/actions/{action}", data=data, headers={"origin": BASE})

    def audit_lines(self) -> list[dict[str, Any]]:
        assert self.settings.data is not None
        path = self.settings.data / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Elements(HTMLParser):
    """The elements and texts of a page, as a browser takes them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))
