"""Decisions of the authorizer, its memory of decisions, and its log."""

import logging
from types import SimpleNamespace

import pytest

from headrace.broker.authorization import acl_authorizer, audit_log
from headrace.broker.authorization.acl_authorizer import AclAuthorizer
from headrace.protocol.api import Api
from headrace.security.acls import AclBinding, AclOperation, Permission, ResourceType
from headrace.security.acls.rule_index import RuleIndex
from headrace.security.principal import Principal

TOPIC, READ, WRITE = ResourceType.TOPIC, AclOperation.READ, AclOperation.WRITE


def connection(name, host="10.0.0.1"):
    return SimpleNamespace(principal=Principal("User", name), host=host, current_api=Api.FETCH)


ALICE, ADMIN = connection("alice"), connection("admin")


@pytest.fixture
def index():
    return RuleIndex([AclBinding.of(TOPIC, "t", "User:alice", READ)])


@pytest.fixture
def authorizer(index):
    return AclAuthorizer(index, [Principal("User", "admin")])


def test_super_users_may_do_everything_even_what_is_denied(authorizer, index):
    index.add(AclBinding.of(TOPIC, "*", "User:*", AclOperation.ALL, Permission.DENY))
    assert authorizer.is_allowed(ADMIN, WRITE, TOPIC, "t")
    assert authorizer.is_allowed_on_any(ADMIN, WRITE, TOPIC)
    assert not authorizer.is_allowed(ALICE, READ, TOPIC, "t")


def test_a_super_user_of_another_type_is_none(authorizer):
    other = SimpleNamespace(principal=Principal("Group", "admin"), host="h", current_api=None)
    assert not authorizer.is_allowed(other, WRITE, TOPIC, "t")


def test_authorized_operations(authorizer):
    assert authorizer.authorized_operations(ALICE, TOPIC, "t") == 1 << READ | 1 << AclOperation.DESCRIBE
    assert authorizer.authorized_operations(ALICE, TOPIC, "u") == 0
    assert authorizer.authorized_operations(ADMIN, TOPIC, "u") == 0b1101_1111_1000


def test_decisions_are_forgotten_when_rules_change(authorizer, index):
    assert not authorizer.is_allowed(ALICE, WRITE, TOPIC, "t")
    assert not authorizer.is_allowed_on_any(ALICE, WRITE, TOPIC)
    index.add(AclBinding.of(TOPIC, "t", "User:alice", WRITE))
    authorizer.forget_decisions()
    assert authorizer.is_allowed(ALICE, WRITE, TOPIC, "t")
    assert authorizer.is_allowed_on_any(ALICE, WRITE, TOPIC)


def test_decisions_depend_on_the_host(index, authorizer):
    index.add(AclBinding.of(TOPIC, "u", "User:alice", READ, host="10.0.0.2"))
    assert not authorizer.is_allowed(ALICE, READ, TOPIC, "u")
    assert authorizer.is_allowed(connection("alice", "10.0.0.2"), READ, TOPIC, "u")


def test_names_that_clients_choose_do_not_fill_the_memory(authorizer, monkeypatch):
    monkeypatch.setattr(acl_authorizer, "_MAX_KEPT", 10)
    for number in range(100):
        authorizer.is_allowed(ALICE, READ, TOPIC, f"t{number}")
    assert len(authorizer._decisions) <= 10
    authorizer.forget_decisions()
    authorizer.is_allowed(ALICE, READ, TOPIC, "x" * 30_000)
    assert not authorizer._decisions


def test_denied_is_logged_at_info_as_kafka_logs_it(authorizer, index, caplog):
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    authorizer.is_allowed(ALICE, READ, TOPIC, "t")
    authorizer.is_allowed(ALICE, WRITE, TOPIC, "t", count=2)
    authorizer.is_allowed(ALICE, WRITE, TOPIC, "secret", log_denied=False)
    authorizer.authorized_operations(ALICE, TOPIC, "t")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("kafka.authorizer.logger", "INFO")
    assert record.getMessage() == (
        "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.1 on resource = Topic:LITERAL:t "
        "for request = Fetch with resourceRefCount = 2 based on rule DefaultDeny"
    )


def test_allowed_is_logged_at_debug(authorizer, caplog):
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    authorizer.is_allowed(ALICE, READ, TOPIC, "t")
    authorizer.is_allowed(ADMIN, READ, TOPIC, "t")
    authorizer.is_allowed(ADMIN, READ, TOPIC, "t", log_allowed=False)
    first, second = caplog.records
    assert {record.levelname for record in caplog.records} == {"DEBUG"}
    assert first.getMessage().endswith(
        "based on rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=t, patternType=LITERAL, "
        "principal=User:alice, host=*, operation=READ, permissionType=ALLOW))"
    )
    assert second.getMessage().endswith("based on rule SuperUser")


def test_a_million_denials_do_not_fill_the_disk(authorizer, caplog):
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    now_s = [0.0]
    authorizer._denials = audit_log.DenialLimit(lambda: now_s[0])
    for number in range(1_500):
        assert not authorizer.is_allowed(ALICE, READ, TOPIC, f"t{number}")
    assert len(caplog.records) == audit_log.MOST_PER_S
    now_s[0] = 1.0
    authorizer.is_allowed(ALICE, READ, TOPIC, "next")
    summary, denied = caplog.messages[audit_log.MOST_PER_S :]
    assert summary == "500 more operations were denied in one second, and are not listed"
    assert "Topic:LITERAL:next" in denied


def test_a_name_cannot_forge_a_line_of_the_log(authorizer, caplog):
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    authorizer.is_allowed(ALICE, READ, ResourceType.GROUP, "g\nPrincipal = User:alice is Allowed")
    assert "\n" not in caplog.records[0].getMessage()
