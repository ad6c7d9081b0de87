"""The pages and actions about security and limits, on a secured broker: ACLs, users, tokens, quotas, certificates."""

from __future__ import annotations

import json
import re

import pytest
import trustme
from console_harness import BASE, Elements
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from headrace import Admin, Broker
from headrace.client.types import Node
from headrace.console.cluster.access import matrix, why
from headrace.console.cluster.certificates import Endpoint, certificate_facts, read_certificates, tls_endpoints
from headrace.security.acls import AclBinding, AclOperation, Permission, ResourceType

_SHARED = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
_LOGIN = {"sasl.username": "admin", "sasl.password": "admin-secret"}
_PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA(organization_name="Console Tests")


@pytest.fixture(scope="module")
def secured(authority):
    """The options of an administrator's client, and the certificate of the broker."""
    made = authority.issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.ECDSA)
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    config = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_admin="admin-secret" user_alice="alice-secret";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "delegation.token.secret.key": "cluster-secret",
        "connection.failed.authentication.delay.ms": 0,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "ssl.keystore.certificate.chain": made.cert_chain_pems[0].bytes().decode(),
    }
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.cert_pem.bytes().decode()}
    with Broker(config={**config, **trust}) as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers, **_SHARED, **trust}
        yield options, load_pem_x509_certificate(made.cert_chain_pems[0].bytes())


@pytest.fixture(scope="module")
def admin(secured):
    with Admin({**secured[0], **_LOGIN}) as admin:
        yield admin


@pytest.fixture
async def console(open_console, secured):
    """A console whose visitor is the administrator."""
    return await open_console(clients={**secured[0], **_LOGIN})


_READ = {
    "principal": "User:alice",
    "operation": "Read",
    "resource_type": "Topic",
    "name": "pay",
    "pattern_type": "Prefixed",
}


async def test_an_acl_is_added_explained_and_removed(console, admin):
    asked = await console.submit("add-acl", **_READ)
    assert "--topic pay --resource-pattern-type prefixed --operation Read --allow-principal User:alice" in asked.text
    assert admin.describe_acls() == []
    assert (await console.submit("add-acl", step="run", **_READ)).is_redirect
    found = await console.json(
        "/api/security?principal=User:alice&operation=Describe&resource_type=Topic&name=payments"
    )
    (row,) = found["rows"]["rows"]
    assert (row["principal"], row["name"], row["allowed"], row["denied"]) == ("User:alice", "pay", ["Read"], [])
    assert found["why"]["is_allowed"]
    assert found["why"]["rule"]["operation"] == "Read"
    assert found["why"]["reason"].endswith("Read includes Describe")
    text = Elements(await console.page("/security?principal=User:bob&name=payments")).text
    assert "Denied: no ACL allows Read on Topic payments to User:bob" in text
    boss = await console.json("/api/security?principal=User:admin&name=payments")
    assert "super.users" in boss["why"]["reason"]
    wrong = await console.submit("add-acl", principal="alice", name="t")
    assert "is not a principal" in wrong.text
    assert (await console.call("add-acl", **{**_READ, "operation": "ClusterAction"})).status_code == 422
    assert (await console.call("remove-acl", **_READ)).status_code == 200
    assert admin.describe_acls() == []
    assert (await console.call("remove-acl", **_READ)).status_code == 404


@pytest.mark.parametrize(
    ("principal", "name", "is_allowed", "reason"),
    [
        ("User:alice", "pay-1", True, "names that begin with pay"),
        ("User:mallory", "pay-1", False, "denies All on every name to User:mallory"),
        ("User:bob", "pay-1", False, "no ACL allows"),
        ("User:root", "x", True, "super.users"),
    ],
)
def test_the_rule_that_decides_is_named(principal, name, is_allowed, reason):
    from headrace.security.acls import PatternType

    rules = [
        AclBinding.of(ResourceType.TOPIC, "pay", "User:*", AclOperation.WRITE, host="10.0.0.1"),
        AclBinding.of(ResourceType.TOPIC, "pay", "User:alice", AclOperation.READ, pattern_type=PatternType.PREFIXED),
        AclBinding.of(ResourceType.TOPIC, "*", "User:mallory", AclOperation.ALL, Permission.DENY),
    ]
    found = why(
        rules, {"super.users": "User:root; User:x"}, principal, "*", AclOperation.READ, ResourceType.TOPIC, name
    )
    assert found.is_allowed is is_allowed
    assert reason in found.reason
    assert "Write from 10.0.0.1" in matrix(rules)[0].allowed


def test_everybody_may_use_what_no_rule_is_about_if_a_setting_says_so():
    asked = ("User:a", "*", AclOperation.READ, ResourceType.TOPIC, "t")
    assert why([], {"allow.everyone.if.no.acl.found": "true"}, *asked).is_allowed
    assert not why([], {}, *asked).is_allowed


async def test_a_password_is_set_and_shown_nowhere(console, admin, caplog):
    fields = {"user": "carol", "mechanism": "SCRAM-SHA-256"}
    asked = await console.submit("set-user-password", password=_PASSWORD, **fields)
    assert "password=PASSWORD" in asked.text
    done = await console.submit("set-user-password", step="run", **fields)
    assert done.headers["location"] == "/security/users"
    assert [info.mechanism for info in admin.describe_user_scram_credentials(["carol"]).value("carol")] == [
        "SCRAM-SHA-256"
    ]
    page = await console.page("/security/users")
    assert "carol" in page
    lines = json.dumps(console.audit_lines())
    assert '"password": "***"' in lines
    for text in (asked.text, page, lines, caplog.text, repr(console.services.sessions.__dict__)):
        assert _PASSWORD not in text
    again = await console.submit("set-user-password", step="run", **fields)
    assert (again.status_code, "a value is needed" in again.text) == (422, True)
    assert "can no longer log in" in (await console.submit("delete-user", **fields)).text
    await console.submit("delete-user", step="run", typed="carol", **fields)
    assert "carol" not in admin.describe_user_scram_credentials().ok


async def test_a_user_with_the_new_password_logs_in(console, admin, secured):
    user = {"user": "dave", "mechanism": "SCRAM-SHA-512"}
    assert (await console.call("set-user-password", password=_PASSWORD, **user)).status_code == 200
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "dave", "sasl.password": _PASSWORD}
    with Admin({**secured[0], **login}) as dave:
        assert dave.describe_cluster().brokers


async def test_tokens_are_listed_without_secret_and_expire(console, admin):
    token = admin.create_delegation_token(renewers=["User:alice"])
    found = await console.get("/api/security/users")
    (row,) = found.json()["tokens"]
    assert (row["token_id"], row["owner"], row["renewers"]) == (token.token_id, "User:admin", ["User:alice"])
    page = await console.page("/security/users")
    asked = await console.submit("expire-token", token_id=token.token_id)
    for text in (found.text, page, asked.text):
        assert token.password not in text
        assert token.hmac.hex() not in text
    assert (await console.call("expire-token", token_id=token.token_id)).status_code == 200
    assert admin.describe_delegation_tokens() == []
    assert (await console.call("expire-token", token_id=token.token_id)).status_code == 404


async def test_quotas_are_set_listed_and_deleted(console, admin):
    from headrace.client.admin.quotas import DEFAULT, QuotaEntity

    fields = {"user": "alice", "client_id": "<default>", "key": "producer_byte_rate"}
    asked = await console.submit("set-quota", value="5000", **fields)
    assert "--entity-type users --entity-name alice --entity-type clients --entity-default" in asked.text
    assert admin.describe_client_quotas() == {}
    assert (await console.submit("set-quota", step="run", value="5000", **fields)).is_redirect
    assert admin.describe_client_quotas() == {QuotaEntity("alice", DEFAULT): {"producer_byte_rate": 5000.0}}
    (row,) = (await console.json("/api/security/quotas?q=alice"))["quotas"]["rows"]
    assert (row["client_id"], row["value"]) == ("<default>", 5000.0)
    assert "&lt;default&gt;" in await console.page("/security/quotas")
    for wrong in ({"value": "0"}, {"value": "nan"}, {"value": "much"}, {"value": "1", "ip": "10.0.0.1"}):
        assert (await console.call("set-quota", **{**fields, **wrong})).status_code == 422
    assert (await console.call("delete-quota", **fields)).status_code == 200
    assert admin.describe_client_quotas() == {}
    assert "has no quota" in (await console.submit("delete-quota", **fields)).text


async def test_certificates_are_shown_with_their_expiry(console, secured):
    certificate = secured[1]
    (row,) = (await console.json("/api/security/certificates"))["certificates"]
    found = row["certificate"]
    assert found["problem"] == ""
    assert found["expires_ms"] == certificate.not_valid_after_utc.timestamp() * 1_000
    assert found["begins_ms"] == certificate.not_valid_before_utc.timestamp() * 1_000
    assert "Console Tests" in found["issuer"]
    assert "Console Tests" in await console.page("/security/certificates")
    expired_ms = found["expires_ms"] + 1
    console.services.clock.wall_ms = lambda: expired_ms
    (row,) = (await console.json("/api/security/certificates"))["certificates"]
    assert (row["left_ms"], row["is_troubled"]) == (-1, True)


async def test_a_listener_without_tls_is_a_reason(broker):
    host, port = broker.bootstrap_servers.split(":")
    (found,) = await read_certificates([Endpoint(0, "SSL", host, int(port))])
    assert (found.expires_ms, found.problem != "") == (None, True)
    for wrong in (b"", b"\x30\x00", b"\x30\x02\x30\x00"):
        with pytest.raises(ValueError):
            certificate_facts(wrong)


def test_the_listeners_with_tls_are_found_in_the_settings():
    settings = {
        "advertised.listeners": "INSIDE://10.0.0.1:9092,OUTSIDE://[::1]:9093,SSL://0.0.0.0:9094",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL,SSL:SSL",
    }
    found = tls_endpoints(Node(1, "b1", 9092), settings, "PLAINTEXT")
    assert [(each.host, each.port) for each in found] == [("::1", 9093), ("b1", 9094)]
    assert [each.port for each in tls_endpoints(Node(1, "b1", 9092), {}, "SASL_SSL")] == [9092]


async def test_a_cluster_without_security_says_why_and_the_rest_works(open_console, broker):
    console = await open_console(clients={"bootstrap.servers": broker.bootstrap_servers})
    found = await console.json("/api/security?principal=User:a&name=t")
    assert (found["acls_problem"]["name"], found["why"]) == ("security_disabled", None)
    assert "set authorizer.class.name" in await console.page("/security")
    users = await console.json("/api/security/users")
    assert (users["users"], users["users_problem"]) == ([], None)
    assert users["tokens_problem"]["name"] in ("delegation_token_auth_disabled", "delegation_token_request_not_allowed")
    assert (await console.json("/api/security/certificates"))["certificates"] == []
    assert (await console.call("add-acl", **_READ)).json()["error"] == "security_disabled"


async def test_a_visitor_without_rights_sees_why(open_console, secured):
    console = await open_console(clients=secured[0], needs_login=True)
    token = re.search(r'name="csrf_token" value="([^"]+)"', await console.page("/login"))[1]
    data = {"csrf_token": token, "user": "alice", "password": "alice-secret"}
    assert (await console.browser.post("/login", data=data, headers={"origin": BASE})).status_code == 303
    found = await console.json("/api/security")
    assert found["acls_problem"]["name"] == "cluster_authorization_failed"
    assert (await console.json("/api/security/quotas"))["problem"]["name"] == "cluster_authorization_failed"
    for path in ("/cluster", "/cluster/transactions", "/groups", "/security/users", "/security/certificates"):
        assert (await console.get(path)).status_code == 200, path
    refused = await console.call("set-user-password", user="alice", password=_PASSWORD)
    assert (refused.status_code, refused.json()["error"]) == (403, "cluster_authorization_failed")
    assert _PASSWORD not in refused.text
