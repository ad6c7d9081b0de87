"""The protection of the console: hosts, headers, CSRF, origins, read-only, and names that look like HTML."""

from __future__ import annotations

import pytest
from console_harness import BASE, Elements

from headrace.console.actions.table import ACTIONS
from headrace.console.protection.headers import HEADERS
from headrace.console.protection.hosts import Hosts
from headrace.console.server import needed_protection
from headrace.console.settings import Settings
from headrace.http_endpoints.access import Access
from headrace.http_endpoints.protection import Protection
from headrace.properties import ConfigError

_PATHS = ("/", "/topics", "/nope", "/api/nope", "/static/console.css", "/api/openapi.json", "/actions/create-topic")


@pytest.mark.parametrize("path", _PATHS)
async def test_every_answer_has_the_headers(console, path):
    answer = await console.get(path)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


async def test_pages_have_neither_inline_scripts_nor_styles(console):
    for path in ("/", "/topics", "/actions/create-topic", "/nope"):
        page = Elements((await console.get(path)).text)
        assert all(script.get("src", "").startswith("/static/") for script in page.named("script"))
        assert page.named("style") == []
        for _, attributes in page.elements:
            assert "style" not in attributes
            assert not any(name.startswith("on") for name in attributes)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "127.0.0.1:x"])
async def test_other_names_are_refused(console, host):
    answer = await console.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]


def test_the_names_of_a_console():
    hosts = Hosts("0.0.0.0", ["console.example", "other.example:8443"])
    assert all(map(hosts.allows, ("localhost:8080", "[::1]:8080", "CONSOLE.example", "other.example:8443")))
    assert not any(map(hosts.allows, ("other.example:80", "0.0.0.0:8080", "example", "[::1]x:80")))


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
class TestEachAction:
    async def test_needs_the_token(self, console, action):
        await console.page("/")
        for token in ("", "wrong"):
            form = await console.browser.post(action.path, data={"csrf_token": token, "step": "run"})
            api = await console.browser.post(action.api_path, json={}, headers={"x-csrf-token": token})
            assert (form.status_code, api.status_code) == (403, 403)
        assert console.audit_lines() == []

    async def test_needs_the_own_origin(self, console, action):
        data = {"csrf_token": await console.token(), "step": "run"}
        for origin in ("http://evil.example", "null", "http://127.0.0.1:9999"):
            answer = await console.browser.post(action.path, data=data, headers={"origin": origin})
            assert answer.status_code == 403
        cross = {"sec-fetch-site": "cross-site"}
        assert (await console.browser.post(action.path, data=data, headers=cross)).status_code == 403

    async def test_is_refused_if_the_console_only_reads(self, open_console, action):
        console = await open_console(is_read_only=True)
        assert (await console.submit(action.name, step="run")).status_code == 403
        answer = await console.call(action.name)
        assert (answer.status_code, answer.json()["error"]) == (403, "read_only")

    async def test_does_nothing_on_get(self, console, action):
        assert (await console.get(action.api_path)).status_code == 405
        assert (await console.get(f"{action.path}?step=run&topic=t")).status_code == 200
        assert console.audit_lines() == []

    async def test_has_bounds(self, console, action):
        headers = {"x-csrf-token": await console.token(), "content-type": "application/json"}
        too_large = await console.browser.post(action.api_path, content=b"x" * 5_000_000, headers=headers)
        assert too_large.status_code == 413
        for body in (b"[]", b"{", b"[" * 10_000, b'{"topic":{}}', b'{"no_such_field":1}'):
            answer = await console.browser.post(action.api_path, content=body, headers=headers)
            assert answer.status_code in (400, 422)


async def test_the_cookie_is_for_this_site_and_no_script(console):
    cookie = (await console.get("/")).headers["set-cookie"]
    assert cookie.startswith("headrace_console_")
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/"))
    assert "set-cookie" not in (await console.get("/topics")).headers


async def test_hostile_text_is_only_text(console):
    hostile = "<script>alert(1)</script>\"'&{{7777*7777}}"
    for path in ("/topics", "/actions/create-topic", "/actions/change-topic-setting"):
        name = {"/topics": "q", "/actions/create-topic": "settings"}.get(path, "value")
        page = (await console.get(path, params={name: hostile})).text
        elements = Elements(page)
        assert "alert(1)" not in "".join(str(script) for script in elements.named("script"))
        assert "<script>alert" not in page
        assert str(7777 * 7777) not in elements.text
    missing = await console.get("/topics/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert missing.status_code in (404, 422)
    assert "<script>alert" not in missing.text


async def test_a_form_is_not_read_as_something_else(console):
    headers = {"content-type": "text/plain", "origin": BASE}
    answer = await console.browser.post("/actions/create-topic", content=b"topic=x", headers=headers)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("certificate", "secret", "needs_login", "is_allowed"),
    [
        ("", "", False, False),
        ("", "", True, False),
        ("c.pem", "", False, False),
        ("c.pem", "", True, True),
        ("c.pem", "alice:secret", False, True),
        ("", "alice:secret", True, False),
    ],
)
def test_an_open_address_needs_tls_and_a_secret(certificate, secret, needs_login, is_allowed):
    given = Protection(certificate=certificate, access=Access(basic=secret))
    protection = needed_protection(Settings(needs_login=needs_login, protection=given))
    protection.check_address("127.0.0.1", "")
    if is_allowed:
        protection.check_address("0.0.0.0", "")
    else:
        with pytest.raises(ConfigError, match=r"other hosts can reach 0\.0\.0\.0"):
            protection.check_address("0.0.0.0", "")


async def test_masked_fields_are_not_in_the_audit_log(open_console):
    console = await open_console(masks=("value",))
    await console.call("change-topic-setting", topic="none", setting="retention.ms", value="4711")
    assert [line["fields"]["value"] for line in console.audit_lines()] == ["***", "***"]
    assert console.audit_lines()[1]["outcome"].startswith("failed: ")
