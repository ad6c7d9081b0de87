"""Client quotas by ``headrace configs``: in Kafka's words, for users, clients, both, and ips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.admin.quotas import DEFAULT, QuotaEntity
from headrace.tools.configs.quota_entities import in_order, lines, words

ALTER, DESCRIBE = ("configs", "--alter"), ("configs", "--describe")


@pytest.fixture(autouse=True)
def clean(admin):
    yield
    for entity, limits in admin.describe_client_quotas().items():
        admin.alter_client_quotas({entity: dict.fromkeys(limits)}).all()


def test_a_quota_is_set_shown_and_removed(tool):
    entity = ("--entity-type", "users", "--entity-name", "alice")
    done = tool(*ALTER, *entity, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    assert done == (0, "Completed updating config for user alice.\n", "")
    shown = tool(*DESCRIBE, *entity)
    assert shown == (
        0, "Quota configs for user-principal 'alice' are producer_byte_rate=1024.0, request_percentage=12.5\n", "",
    )  # fmt: skip
    assert tool(*DESCRIBE, "--user", "alice").lines == shown.lines
    tool(*ALTER, "--user", "alice", "--delete-config", "request_percentage")
    assert tool(*DESCRIBE, *entity).lines == ["Quota configs for user-principal 'alice' are producer_byte_rate=1024.0"]


@pytest.mark.parametrize(
    ("entity", "done", "shown"),
    [
        (("--user", "a"), "config for user a.", "user-principal 'a'"),
        (("--user-defaults",), "default config for users in the cluster.", "the default user-principal"),
        (("--client", "c"), "config for client c.", "client-id 'c'"),
        (("--client-defaults",), "default config for clients in the cluster.", "the default client-id"),
        (("--user", "a", "--client", "c"), "config for client c.", "user-principal 'a', client-id 'c'"),
        (("--entity-type", "clients", "--entity-default"), "default config for clients in the cluster.",
         "the default client-id"),
        (("--entity-type", "users", "--entity-name", "a", "--entity-type", "clients", "--entity-default"),
         "config for user a.", "user-principal 'a', the default client-id"),
        (("--entity-type", "clients", "--entity-type", "users", "--entity-default", "--entity-name", "a"),
         "default config for clients in the cluster.", "user-principal 'a', the default client-id"),
        (("--entity-type", "users", "--entity-type", "clients", "--entity-default", "--entity-default"),
         "default config for users in the cluster.", "the default user-principal, the default client-id"),
    ],
)  # fmt: skip
def test_the_entities_of_clients(tool, entity, done, shown):
    assert tool(*ALTER, *entity, "--add-config", "consumer_byte_rate=5").out == f"Completed updating {done}\n"
    assert tool(*DESCRIBE, *entity).lines == [f"Quota configs for {shown} are consumer_byte_rate=5.0"]


def test_quotas_of_ips(tool):
    rate = ("--add-config", "connection_creation_rate=1000.0")
    assert tool(*ALTER, "--ip", "127.0.0.1", *rate).out == "Completed updating config for ip 127.0.0.1.\n"
    assert tool(*ALTER, "--ip-defaults", *rate).out == "Completed updating default config for ips in the cluster.\n"
    assert tool(*DESCRIBE, "--entity-type", "ips").lines == [
        "Quota configs for ip '127.0.0.1' are connection_creation_rate=1000.0",
        "Quota configs for the default ip are connection_creation_rate=1000.0",
    ]
    failed = tool(*ALTER, "--ip", "no.such.host.invalid", *rate)
    assert failed.code == 1
    assert "not a valid IP or resolvable host" in failed.err


def test_all_entities_of_a_type(tool):
    for entity in (["--user", "a"], ["--user", "a", "--client", "c"], ["--user-defaults"], ["--client", "c"]):
        tool(*ALTER, *entity, "--add-config", "producer_byte_rate=1")
    rate = "are producer_byte_rate=1.0"
    users = [f"Quota configs for user-principal 'a' {rate}", f"Quota configs for the default user-principal {rate}"]
    assert tool(*DESCRIBE, "--entity-type", "users").lines[:2] == users
    both = [f"Quota configs for user-principal 'a', client-id 'c' {rate}"]
    assert tool(*DESCRIBE, "--entity-type", "users", "--entity-type", "clients").lines == both
    assert tool(*DESCRIBE, "--entity-type", "users", "--entity-name", "a", "--entity-type", "clients").lines == both
    assert tool(*DESCRIBE, "--entity-type", "clients").lines == [f"Quota configs for client-id 'c' {rate}"]


def test_quotas_and_credentials_of_a_user(tool):
    tool(*ALTER, "--user", "dora", "--add-config", "SCRAM-SHA-256=[password=x]")
    tool(*ALTER, "--user", "dora", "--add-config", "producer_byte_rate=1")
    quota = "Quota configs for user-principal 'dora' are producer_byte_rate=1.0"
    credential = "SCRAM credential configs for user-principal 'dora' are SCRAM-SHA-256=iterations=4096"
    assert tool(*DESCRIBE, "--user", "dora").lines == [quota, credential]
    assert set(tool(*DESCRIBE, "--entity-type", "users").lines) >= {quota, credential}
    assert tool(*DESCRIBE, "--user-defaults").lines == []
    assert tool(*DESCRIBE, "--user", "dora", "--json").value == [
        {"entity": {"user": "dora"}, "quotas": {"producer_byte_rate": 1.0}},
        {
            "entityType": "users",
            "entityName": "dora",
            "credentials": [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}],
        },
    ]
    tool(*ALTER, "--user", "dora", "--delete-config", "SCRAM-SHA-256")
    assert tool(*DESCRIBE, "--user", "dora") == (0, f"{quota}\n", "")


def test_json(tool):
    done = tool(*ALTER, "--user-defaults", "--client", "c", "--add-config", "producer_byte_rate=1", "--json").value
    entity = {"user": None, "client-id": "c"}
    assert done == {"entity": entity, "changed": {"producer_byte_rate": 1.0}}
    shown = tool(*DESCRIBE, "--entity-type", "users", "--entity-type", "clients", "--json").value
    assert shown == [{"entity": entity, "quotas": {"producer_byte_rate": 1.0}}]


def test_a_removed_quota_must_be_there(tool):
    tool(*ALTER, "--user", "a", "--add-config", "producer_byte_rate=1")
    failed = tool(*ALTER, "--user", "a", "--delete-config", "consumer_byte_rate")
    assert (failed.code, failed.err) == (1, "headrace configs: Invalid config(s): consumer_byte_rate\n")


@pytest.mark.parametrize("limit", ["-1", "0", "nan", "1.5"])
def test_what_the_broker_refuses(tool, limit):
    failed = tool(*ALTER, "--user", "a", "--add-config", f"producer_byte_rate={limit}")
    assert (failed.code, failed.err.count("\n")) == (1, 1)
    assert "producer_byte_rate" in failed.err
    assert tool(*DESCRIBE, "--user", "a") == (0, "", "")


def test_force_asks_and_changes_nothing(tool):
    """Kafka's tool has the option, and scripts give it."""
    assert tool(*DESCRIBE, "--user", "nobody", "--force") == (0, "", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--alter", "--user", "a", "--add-config", "producer_byte_rate=many"],
        ["--alter", "--user", "a", "--add-config", "nonsense=1"],
        ["--alter", "--user", "a", "--delete-config", "nonsense"],
        ["--alter", "--user", "a", "--add-config", "connection_creation_rate=1"],
        ["--alter", "--ip", "127.0.0.1", "--add-config", "producer_byte_rate=1"],
        ["--alter", "--client", "a", "--add-config", "SCRAM-SHA-256=[password=x]"],
        ["--alter", "--user", "a", "--client", "b", "--add-config", "SCRAM-SHA-256=[password=x]"],
        ["--alter", "--user-defaults", "--add-config", "SCRAM-SHA-256=[password=x]"],
        ["--alter", "--user", "a", "--add-config", "SCRAM-SHA-256=[password=x],producer_byte_rate=1"],
        ["--alter", "--entity-type", "users", "--entity-type", "clients", "--entity-name", "a", "--add-config",
         "producer_byte_rate=1"],
        ["--describe", "--entity-type", "users", "--entity-type", "users"],
        ["--describe", "--entity-type", "users", "--entity-type", "ips"],
        ["--describe", "--entity-type", "users", "--entity-type", "topics"],
        ["--describe", "--entity-type", "users", "--entity-name", "a", "--entity-name", "b"],
        ["--describe", "--user", "a", "--user-defaults"],
        ["--describe", "--user", "a", "--ip", "127.0.0.1"],
        ["--describe", "--user", ""],
        ["--describe", "--client", "a", "--zookeeper", "127.0.0.1:1"],
        ["--describe", "--user-defaults", "--zookeeper", "127.0.0.1:1"],
        ["--alter", "--user", "a", "--zookeeper", "127.0.0.1:1", "--add-config", "producer_byte_rate=1"],
    ],
)  # fmt: skip
def test_wrong_use(tool, arguments):
    failed = tool("configs", *arguments)
    assert (failed.code, failed.out, failed.err.count("\n")) == (2, "", 1)


# -- without a broker


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (1024.0, "1024.0"), (0.5, "0.5"), (9_999_999.0, "9999999.0"), (1e7, "1.0E7"), (10_485_760.0, "1.048576E7"),
        (0.0001, "1.0E-4"), (1e300, "1.0E300"), (12_345_678.9, "1.23456789E7"),
    ],
)  # fmt: skip
def test_numbers_are_shown_as_java_shows_them(limit, text):
    (line,) = lines({QuotaEntity(user="a"): {"request_percentage": limit}})
    assert line.endswith(f"request_percentage={text}")


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_a_number_that_is_shown_can_be_read_again(limit):
    (line,) = lines({QuotaEntity(user="a"): {"request_percentage": limit}})
    assert float(line.rpartition("=")[2]) == limit


def test_entities_in_order():
    entities = [QuotaEntity(DEFAULT), QuotaEntity("b"), QuotaEntity("a", DEFAULT), QuotaEntity("a", "c")]
    assert [words(entity) for entity in in_order({entity: {} for entity in entities})] == [
        "user-principal 'a', client-id 'c'",
        "user-principal 'a', the default client-id",
        "user-principal 'b'",
        "the default user-principal",
    ]
