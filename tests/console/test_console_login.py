"""The login with a user of the cluster: ACLs decide what a visitor sees, and no form of another site logs in."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from console_harness import BASE, ConsoleHarness

from headrace import Admin, Broker, Producer
from headrace.security.acls import AclBinding, AclOperation, ResourceType

_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret"}
_SHARED = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


@pytest.fixture(scope="module")
def secured_broker():
    users = " ".join(f'user_{user}="{password}"' for user, password in _PASSWORDS.items())
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_JAAS} {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with Broker(config=config) as broker:
        login = {"sasl.username": "admin", "sasl.password": _PASSWORDS["admin"]}
        with Admin({"bootstrap.servers": broker.bootstrap_servers, **_SHARED, **login}) as admin:
            admin.create_topic("secret-plans")
        yield broker


@pytest.fixture
async def console(open_console, secured_broker):
    clients = {"bootstrap.servers": secured_broker.bootstrap_servers, **_SHARED}
    return await open_console(clients=clients, needs_login=True)


async def log_in(console: ConsoleHarness, user: str, password: str, **more: str):
    form = await console.page("/login")
    token = re.search(r'name="csrf_token" value="([^"]+)"', form)[1]
    data = {"csrf_token": token, "user": user, "password": password, **more}
    return await console.browser.post("/login", data=data, headers={"origin": BASE})


async def test_nothing_is_shown_without_a_login(console):
    page = await console.get("/topics/secret-plans?page=1")
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=%2Ftopics%2Fsecret-plans%3Fpage%3D1")
    for path in ("/api/topics", "/api/session", "/api/overview"):
        assert (await console.json(path, 401))["error"] == "login_needed"
    assert (await console.get("/static/console.css")).status_code == 200


async def test_acls_decide_what_a_visitor_sees_and_does(console):
    done = await log_in(console, "alice", _PASSWORDS["alice"], next="/topics")
    assert (done.status_code, done.headers["location"]) == (303, "/topics")
    assert "secret-plans" not in await console.page("/topics")
    assert (await console.get("/topics/secret-plans")).status_code in (403, 404)
    refused = await console.call("create-topic", topic="mine")
    assert (refused.status_code, refused.json()["error"]) == (403, "topic_authorization_failed")
    line = console.audit_lines()[-1]
    assert (line["user"], line["action"], line["outcome"][:7]) == ("alice", "create-topic", "failed:")


async def test_an_administrator_sees_everything_until_the_logout(console):
    await log_in(console, "admin", _PASSWORDS["admin"])
    page = await console.page("/topics")
    assert "secret-plans" in page
    assert "admin" in page
    data = {"csrf_token": await console.token()}
    assert (await console.browser.post("/logout", data={"csrf_token": "x"})).status_code == 403
    assert (await console.browser.post("/logout", data=data)).status_code == 303
    assert (await console.get("/topics")).status_code == 303
    assert len(console.services.sessions) == 0


async def test_a_wrong_password_is_told_and_never_shown(console):
    answer = await log_in(console, "alice", "guess-123")
    assert answer.status_code == 403
    assert "authentication_failed" in answer.text
    assert "guess-123" not in answer.text
    assert "guess-123" not in str(console.audit_lines())
    assert console.audit_lines()[-1]["user"] == "alice"


async def test_the_form_of_another_site_does_not_log_in(console):
    data = {"user": "alice", "password": _PASSWORDS["alice"], "csrf_token": "guess"}
    assert (await console.browser.post("/login", data=data, headers={"origin": BASE})).status_code == 403
    assert (await log_in(console, "alice", _PASSWORDS["alice"], csrf_token="")).status_code == 403
    headers = {"origin": "http://evil.example"}
    assert (await console.browser.post("/login", data=data, headers=headers)).status_code == 403
    assert len(console.services.sessions) == 0


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example", "x", "/a\r\nb: c"])
async def test_a_login_never_leads_to_another_site(console, target):
    done = await log_in(console, "alice", _PASSWORDS["alice"], next=target)
    assert urlsplit(done.headers["location"]).netloc == ""
    assert done.headers["location"] == "/"


async def test_sessions_end_and_are_bounded(open_console):
    from headrace.console.protection import sessions as module
    from headrace.console.protection.sessions import Sessions
    from headrace.testing import ManualClock

    console, clock = await open_console(), ManualClock()
    sessions = Sessions(clock)
    first = await sessions.begin("", console.services.reader, owns_reader=False)
    clock.advance(module.IDLE_MS)
    assert sessions.find(first.id) is first
    clock.advance(module.IDLE_MS + 1)
    assert sessions.find(first.id) is None
    for _ in range(module.MOST_SESSIONS + 5):
        last = await sessions.begin("", console.services.reader, owns_reader=False)
    assert len(sessions) == module.MOST_SESSIONS
    assert sessions.find(last.id) is last


def _allow(topic: str, operation: AclOperation) -> AclBinding:
    return AclBinding.of(ResourceType.TOPIC, topic, "User:alice", operation)


async def test_records_need_a_login_and_the_right_to_read(console, secured_broker):
    streams = ("/topics/described/tail/events", "/topics/described/search/download")
    for path in (*streams, "/topics/described/records/0/0/download"):
        assert (await console.get(path)).status_code == 303
    login = {"sasl.username": "admin", "sasl.password": _PASSWORDS["admin"]}
    with Admin({"bootstrap.servers": secured_broker.bootstrap_servers, **_SHARED, **login}) as admin:
        admin.create_topic("described", num_partitions=1)
        admin.create_acls([_allow("described", AclOperation.DESCRIBE)]).all()
        with Producer({"bootstrap.servers": secured_broker.bootstrap_servers, **_SHARED, **login}) as producer:
            producer.send("described", value=b"plan-b").result()
        await log_in(console, "alice", _PASSWORDS["alice"])
        for path in ("records", "records/0/0", "search?go=true"):
            answer = await console.get(f"/api/topics/described/{path}")
            is_refused = answer.status_code == 403 or answer.json().get("state") == "failed"
            assert (is_refused, "topic_authorization_failed" in answer.text) == (True, True)
            assert "plan-b" not in answer.text
        assert (await console.call("produce-record", topic="described", value="x")).status_code == 403
        admin.create_acls([_allow("described", AclOperation.READ)]).all()
        assert "plan-b" in (await console.get("/api/topics/described/records")).text
