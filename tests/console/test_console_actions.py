"""The actions on topics: form, confirmation, the change itself, the command line, and the audit log."""

from __future__ import annotations

import shlex
from importlib import import_module

import pytest
from console_harness import Elements

from headrace import Admin
from headrace.console.actions.table import ACTIONS
from headrace.tools.main import COMMANDS


@pytest.fixture(scope="module")
def admin(broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


async def test_a_topic_is_created_by_the_form(console, admin):
    form = Elements(await console.page("/actions/create-topic"))
    labelled = {each.get("for") for each in form.named("label")}
    inputs = [each for tag in ("input", "textarea") for each in form.named(tag) if each.get("type") != "hidden"]
    assert {each["id"] for each in inputs} <= labelled
    fields = {"topic": "by-form", "partitions": "2", "settings": "retention.ms=5000"}
    confirmation = await console.submit("create-topic", **fields)
    assert "--topic by-form --partitions 2 --config retention.ms=5000" in confirmation.text
    assert "by-form" not in admin.list_topics()
    done = await console.submit("create-topic", step="run", **fields)
    assert (done.status_code, done.headers["location"]) == (303, "/topics/by-form")
    assert len(admin.describe_topic("by-form").partitions) == 2
    assert "was created" in await console.page("/topics/by-form")
    assert "was created" not in await console.page("/topics/by-form")
    assert [(line["action"], line["outcome"]) for line in console.audit_lines()] == [
        ("create-topic", "begun"),
        ("create-topic", "done"),
    ]


async def test_a_topic_is_deleted_only_if_its_name_is_typed(console, admin):
    admin.create_topic("short-lived")
    asked = await console.submit("delete-topic", topic="short-lived")
    assert "nothing brings them back" in asked.text
    assert (await console.submit("delete-topic", topic="short-lived", step="run", typed="x")).status_code == 422
    assert "short-lived" in admin.list_topics()
    assert (await console.submit("delete-topic", topic="short-lived", step="run", typed="short-lived")).is_redirect
    assert "short-lived" not in admin.list_topics()


async def test_partitions_are_added_and_settings_changed(console, admin):
    admin.create_topic("grows", num_partitions=1)
    assert (await console.call("add-partitions", topic="grows", partitions=3)).status_code == 200
    assert len(admin.describe_topic("grows").partitions) == 3
    assert "give more" in (await console.submit("add-partitions", topic="grows", partitions="2")).text
    changed = await console.call("change-topic-setting", topic="grows", setting="retention.ms", value="1000")
    assert changed.status_code == 200
    assert admin.describe_config("topic", "grows")["retention.ms"].value == "1000"
    await console.call("change-topic-setting", topic="grows", setting="retention.ms", restore=True)
    assert admin.describe_config("topic", "grows")["retention.ms"].is_default


async def test_what_the_broker_refuses_is_shown_at_the_form(console, admin):
    admin.create_topic("strict")
    answer = await console.submit("change-topic-setting", topic="strict", setting="retention.ms", value="many")
    assert answer.status_code == 422
    assert "invalid_config" in answer.text
    assert 'value="many"' in answer.text


async def test_records_are_deleted(console, admin, broker):
    from headrace import Producer
    from headrace.client.types import TopicPartition

    admin.create_topic("purged", num_partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(10):
            producer.send("purged", value=b"x")
    fields = {"topic": "purged", "partition": "0", "before_offset": "4"}
    assert "&#34;offset&#34;: 4" in (await console.submit("delete-records", **fields)).text
    await console.submit("delete-records", step="run", typed="purged", **fields)
    at = TopicPartition("purged", 0)
    assert admin.list_offsets({at: "earliest"})[at].offset == 4


_ACL = {
    "principal": "User:a", "permission": "Allow", "operation": "Read", "resource_type": "Topic", "name": "t",
    "pattern_type": "Prefixed", "host": "*",
}  # fmt: skip
#: Values of each action, for its command line.
_VALUES = {
    "create-topic": {"topic": "t", "partitions": 2, "replication_factor": 1, "settings": "a=b c"},
    "delete-topic": {"topic": "t"},
    "add-partitions": {"topic": "t", "partitions": 2},
    "change-topic-setting": {"topic": "t", "setting": "a", "value": "b,c", "restore": False},
    "delete-records": {"topic": "t", "partition": 1, "before_offset": 3},
    "produce-record": {"topic": "t"},
    "copy-record": {"topic": "t", "partition": 1, "offset": 3},
    "reset-offsets": {"group": "g", "topic": "t", "partitions": "0,1", "to": "shift", "value": "-5"},
    "delete-group": {"group": "g"},
    "delete-group-offsets": {"group": "g", "topic": "t", "partitions": ""},
    "remove-member": {"group": "g", "member": "m"},
    "reassign-partitions": {"topics": "t", "brokers": "1,2", "replicas": None, "throttle": 5_000},
    "cancel-reassignment": {"topic": "t", "partition": 0},
    "remove-throttles": {"topics": "t"},
    "elect-preferred-leaders": {"topic": "t", "partition": 0},
    "terminate-transaction": {"transactional_id": "payments-1"},
    "abort-transaction": {"topic": "t", "partition": 0, "start_offset": 5},
    "add-acl": _ACL,
    "remove-acl": {**_ACL, "permission": "Deny", "resource_type": "Cluster", "operation": "Alter"},
    "set-user-password": {"user": "u", "mechanism": "SCRAM-SHA-256", "password": "secret", "iterations": 4096},
    "delete-user": {"user": "u", "mechanism": "SCRAM-SHA-256"},
    "expire-token": {"token_id": "T"},
    "set-quota": {"user": "u", "client_id": "<default>", "ip": "", "key": "producer_byte_rate", "value": "5"},
    "delete-quota": {"user": "", "client_id": "", "ip": "10.0.0.1", "key": "connection_creation_rate"},
    "switch-view": {"view": "v", "version": 2},
    "rollback-view": {"view": "v"},
    "run-view-batch": {"view": "v", "full": True},
    "drop-view": {"view": "v", "version": None},
    "replay-dead-letter": {"view": "v", "topic": "t", "partition": 1, "offset": 3, "value": ""},
}


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_command_lines_are_good_for_the_parser_of_the_command(action):
    words = action.command_line(_VALUES[action.name])
    assert words[0] == "headrace"
    assert shlex.split(shlex.join(words)) == words
    parsed = import_module(COMMANDS[words[1]][0]).parser().parse_args(words[2:])
    assert parsed is not None
