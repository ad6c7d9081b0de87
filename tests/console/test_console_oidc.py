"""The login by an OpenID provider: its token is the visitor's login at the brokers, and nothing forged logs in."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from console_harness import BASE, Elements
from identity_provider import CLIENT, SECRET, WELL_KNOWN, admin_token, identity_provider, oauth_broker_config

from headrace import Admin, Broker
from headrace.console.oidc.settings import SECRET_VARIABLE, OidcSettings, read_oidc
from headrace.properties import ConfigError
from headrace.testing import ManualClock
from headrace.tools.console import main
from token_harness import key_set, rsa_key, unsecured

_CALLBACK = f"{BASE}/login/oidc/callback"
_SHARED = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


@pytest.fixture(scope="module")
def oauth_broker(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(key_set())
    with Broker(config=oauth_broker_config(keys.as_uri())) as broker:
        own = {"bootstrap.servers": broker.bootstrap_servers, **_SHARED, "sasl.oauth.token.provider": admin_token}
        with Admin(own) as admin:
            admin.create_topic("secret-plans")
        yield broker


@pytest.fixture
def provider():
    with identity_provider() as provider:
        yield provider


@pytest.fixture
def settings(provider):
    allowed = (f"{provider.url}/token", f"{provider.url}/keys")
    return OidcSettings(f"{provider.url}{WELL_KNOWN}", CLIENT, _CALLBACK, allowed, SECRET)


@pytest.fixture
async def open_oidc(open_console, oauth_broker, settings):
    async def open_(**changed):
        clients = {"bootstrap.servers": oauth_broker.bootstrap_servers, **_SHARED}
        return await open_console(clients=clients, needs_login=True, oidc=replace(settings, **changed))

    return open_


async def begin(console, following="/topics"):
    """The address of the provider that the browser is sent to."""
    answer = await console.get(f"/login/oidc?{urlencode({'next': following})}")
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def log_in(console, provider, following="/topics"):
    return await console.get(provider.authorize(await begin(console, following)))


def session_cookies(answer):
    return [each for each in answer.headers.get_list("set-cookie") if each.startswith("headrace_console")]


async def test_the_token_of_the_provider_decides_what_a_visitor_sees(open_oidc, provider):
    console = await open_oidc()
    form = Elements(await console.page("/login?next=/topics"))
    assert "/login/oidc?next=%2Ftopics" in [each.get("href") for each in form.named("a")]
    assert form.named("input") == []
    done = await log_in(console, provider)
    assert done.status_code == 200
    assert {"http-equiv": "refresh", "content": "0; url=/topics"} in Elements(done.text).named("meta")
    (cookie,) = session_cookies(done)
    assert "SameSite=strict" in cookie
    assert "HttpOnly" in cookie
    assert "secret-plans" not in await console.page("/topics")
    refused = await console.call("create-topic", topic="mine")
    assert (refused.status_code, refused.json()["error"]) == (403, "topic_authorization_failed")
    assert (console.audit_lines()[-1]["user"], console.audit_lines()[-1]["action"]) == ("alice", "create-topic")
    provider.user = "admin"
    await log_in(console, provider)
    assert "secret-plans" in await console.page("/topics")
    assert SECRET not in str(console.audit_lines())


async def test_a_login_makes_a_new_session_and_ends_the_earlier_one(open_oidc, provider):
    console = await open_oidc()
    first = session_cookies(await log_in(console, provider))
    second = session_cookies(await log_in(console, provider))
    assert first != second
    assert len(console.services.sessions) == 1


async def test_the_session_ends_with_the_token(open_oidc, provider):
    console = await open_oidc()
    await log_in(console, provider)
    (session,) = console.services.sessions._sessions.values()
    left_ms = session.ends_ms - console.services.clock.monotonic_ms()
    assert 590_000 < left_ms <= 600_000
    session.ends_ms = console.services.clock.monotonic_ms()
    assert (await console.get("/topics")).status_code == 303


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another-client"},
        {"iss": "https://evil.example"},
        {"exp": 1_700_003_600, "iat": 1_700_000_000},
        {"aud": [CLIENT, "another-client"]},
        {"azp": "another-client"},
        {"key": "stranger"},
        {"key_id": "unknown"},
        {"sub": None},
    ],
    ids=str,
)
async def test_an_id_token_that_is_not_for_this_login_is_refused(open_oidc, provider, claims):
    console = await open_oidc()
    if "key" in claims:
        claims = {"key": rsa_key("stranger")}
    provider.claims = claims
    answer = await log_in(console, provider)
    assert (answer.status_code, session_cookies(answer)) == (403, [])
    assert "ID token is not good" in answer.text
    assert len(console.services.sessions) == 0
    assert console.audit_lines()[-1]["outcome"].startswith("failed: the ID token")


async def test_an_unsigned_id_token_is_refused(open_oidc, provider):
    console = await open_oidc()
    now_s = int(time.time())
    provider.answer = {"id_token": unsecured(iss=provider.url, aud=CLIENT, iat=now_s, exp=now_s + 60)}
    assert (await log_in(console, provider)).status_code == 403
    provider.answer = {"id_token": None}
    assert (await log_in(console, provider)).status_code == 502


async def test_the_answer_must_belong_to_this_browser(open_oidc, provider):
    console = await open_oidc()
    theirs = provider.authorize(await begin(console))
    stranger = console.new_browser()
    assert (await stranger.get(theirs)).status_code == 403
    await stranger.aclose()
    for changed in ({"state": "guess"}, {"state": ""}, {"iss": "https://evil.example"}, {"code": ""}):
        own = provider.authorize(await begin(console))  # a failed answer ends the attempt, so each has its own
        given = {name: values[0] for name, values in parse_qs(urlsplit(own).query).items()}
        assert (await console.get(f"{_CALLBACK}?{urlencode(given | changed)}")).status_code == 403, changed
    assert len(console.services.sessions) == 0


async def test_a_code_is_good_once_and_an_attempt_for_ten_minutes(open_oidc, provider):
    console = await open_oidc()
    answer = provider.authorize(await begin(console))
    assert (await console.get(answer)).status_code == 200
    assert (await console.get(answer)).status_code == 403
    address = await begin(console)
    clock = console.services.clock
    console.services.clock = ManualClock(wall_ms=clock.wall_ms() + 601_000)
    assert (await console.get(provider.authorize(address))).status_code == 403
    console.services.clock = clock


async def test_the_provider_may_refuse_and_its_words_are_not_shown(open_oidc, provider):
    console = await open_oidc()
    state = parse_qs(urlsplit(await begin(console)).query)["state"][0]
    query = urlencode({"state": state, "error": "access_denied", "error_description": "<b>call 555</b>"})
    answer = await console.get(f"{_CALLBACK}?{query}")
    assert (answer.status_code, "access_denied" in answer.text, "555" in answer.text) == (403, True, False)


async def test_only_listed_urls_are_asked(open_oidc, provider):
    with identity_provider() as internal:
        for name in ("token_endpoint", "jwks_uri"):
            provider.document = {name: f"{internal.url}/secret"}
            answer = await (await open_oidc()).get("/login/oidc")
            assert (answer.status_code, f"the {name} " in answer.text) == (502, True)
        assert internal.asked == []
    provider.document = {"issuer": "https://evil.example"}
    assert "another issuer" in (await (await open_oidc()).get("/login/oidc")).text
    provider.document = {"authorization_endpoint": "javascript:alert(1)"}
    assert (await (await open_oidc()).get("/login/oidc")).status_code == 502


async def test_a_wrong_secret_and_a_token_that_the_brokers_refuse(open_oidc, provider):
    answer = await log_in(await open_oidc(client_secret="wrong-secret"), provider)
    assert (answer.status_code, "invalid_client" in answer.text, "wrong-secret" in answer.text) == (502, True, False)
    console = await open_oidc(token="id")  # its audience is the console, and the brokers want kafka
    answer = await log_in(console, provider)
    assert (answer.status_code, "authentication_failed" in answer.text) == (403, True)
    provider.claims = {"aud": [CLIENT, "kafka"], "azp": CLIENT}
    assert (await log_in(console, provider)).status_code == 200


async def test_the_console_has_one_way_to_log_in(open_oidc, console):
    page = await (await open_oidc()).browser.post(
        "/login", data={"user": "a", "password": "b"}, headers={"origin": BASE}
    )
    assert page.status_code == 403
    assert (await console.get("/login/oidc")).status_code == 404
    assert (await console.get(_CALLBACK)).status_code == 404


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example", "x" * 5_000])
async def test_a_login_never_leads_to_another_site(open_oidc, provider, target):
    done = await log_in(await open_oidc(), provider, target)
    assert re.findall(r'content="0; url=([^"]*)"', done.text) == ["/"]


async def test_a_login_under_another_name_says_the_right_one(open_oidc):
    answer = await (await open_oidc()).get("http://localhost:8080/login/oidc")
    assert (answer.status_code, BASE in answer.text) == (403, True)


# ------------------------------------------------------------------------------------------------------------ the file


def _file(tmp_path, **changed):
    values = {
        "discovery.url": f"https://idp.example/realm{WELL_KNOWN}",
        "client.id": CLIENT,
        "redirect.url": "https://console.example/login/oidc/callback",
        "allowed.urls": "https://idp.example/token, https://idp.example/keys",
        **changed,
    }
    path = tmp_path / "oidc.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items() if value is not None))
    return path


def test_the_secret_comes_from_the_file_or_the_environment(tmp_path):
    found = read_oidc(_file(tmp_path), {SECRET_VARIABLE: SECRET})
    assert (found.client_secret, found.is_secure) == (SECRET, True)
    assert found.allowed_urls == ("https://idp.example/token", "https://idp.example/keys")
    assert read_oidc(_file(tmp_path, **{"client.secret": "in-file"}), {}).client_secret == "in-file"
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("client.id", None, "client.id is missing"),
        ("clientsecret", "x", "unknown name clientsecret"),
        ("discovery.url", f"http://idp.example{WELL_KNOWN}", "http:// is for this host only"),
        ("discovery.url", "https://idp.example/", "must end with"),
        ("redirect.url", "http://console.example/login/oidc/callback", "http:// is for this host only"),
        ("redirect.url", "https://console.example/elsewhere", "with the path /login/oidc/callback"),
        ("allowed.urls", "file:///etc/passwd", "must be https://HOST/PATH"),
        ("allowed.urls", "https://user@idp.example/token", "without a user"),
        ("token", "both", "must be one of access, id"),
        ("scope", "profile", "must have the word openid"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, name, value, reason):
    with pytest.raises(ConfigError, match=re.escape(reason)):
        read_oidc(_file(tmp_path, **{name: value}), {})


def test_the_command_checks_the_mechanism_and_the_redirect_url(tmp_path, capsys):
    clients = tmp_path / "client.properties"
    clients.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    options = ["--listen", "127.0.0.1:0", "--oidc", str(_file(tmp_path)), "--command-config", str(clients)]
    assert main(options) == 2
    assert "sasl.mechanism=OAUTHBEARER" in capsys.readouterr().err
    clients.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n")
    assert main(options) == 2
    assert "add --allowed-host" in capsys.readouterr().err
