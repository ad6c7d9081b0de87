"""DescribeClientQuotas and AlterClientQuotas: filters, errors per entity, what is in the tree, and rights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Broker
from headrace.broker.handlers.alter_client_quotas import MOST_AT_ONCE
from headrace.broker.quotas.entities import DEFAULT, TYPES, Entity
from headrace.broker.quotas.filters import Component, Match, QuotaFilter
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing import RawClient

PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
OK = (ErrorCode.none, None)
Names = dict[str, str | None]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers, timeout_s=100) as client:
        yield client


def entry(names: Names | list[tuple[str, str | None]], *ops: tuple[str, float | None]) -> dict[str, Any]:
    parts = names.items() if isinstance(names, dict) else names
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }


def alter(client: RawClient, *entries: dict[str, Any], version: int = 1, validate_only: bool = False) -> list[Any]:
    answer = client.ask(Api.ALTER_CLIENT_QUOTAS, version, entries=entries, validate_only=validate_only)
    return [(each.error_code, each.error_message) for each in answer.entries]


def ask(client: RawClient, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    parts = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    return client.ask(Api.DESCRIBE_CLIENT_QUOTAS, version, components=parts, strict=strict)


def describe(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:
    answer = ask(client, *components, strict=strict, version=version)
    assert (answer.error_code, answer.error_message) == OK
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in answer.entries
    }


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_changed_and_removed(client: RawClient, version: int) -> None:
    alice, anyone = {"user": "alice"}, {"user": None, "client-id": "app"}
    done = alter(
        client, entry(alice, (PRODUCE, 1000.0), (CONSUME, 5.0)), entry(anyone, (PRODUCE, 7.0)), version=version
    )
    assert done == [OK, OK]
    assert describe(client, version=version) == {
        (("user", "alice"),): {PRODUCE: 1000.0, CONSUME: 5.0},
        (("user", None), ("client-id", "app")): {PRODUCE: 7.0},
    }
    assert alter(client, entry(alice, (PRODUCE, 2000.0), (CONSUME, None)), version=version) == [OK]
    assert describe(client, ("user", Match.EXACT, "alice"), version=version) == {
        (("user", "alice"),): {PRODUCE: 2000.0}
    }
    assert alter(client, entry(alice, (PRODUCE, None)), entry(anyone, (PRODUCE, None)), version=version) == [OK, OK]
    assert describe(client, version=version) == {}


def test_quotas_of_ips(client: RawClient) -> None:
    rate = ("connection_creation_rate", 1000.0)
    assert alter(client, entry({"ip": "127.0.0.1"}, rate), entry({"ip": None}, rate)) == [OK, OK]
    assert describe(client, ("ip", Match.DEFAULT, None)) == {(("ip", None),): {rate[0]: 1000.0}}
    assert len(describe(client)) == 2


def test_quotas_and_credentials_share_a_znode_and_survive_a_restart(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        credential = {"name": "al ice", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
        client.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, upsertions=[credential], deletions=())
        alter(client, entry({"user": "al ice"}, (PRODUCE, 9.0)))
        client.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, upsertions=[credential | {"mechanism": 2}], deletions=())
        users = broker.core.scram_users
        assert [*users] == ["al ice"]
        assert len(users.of("al ice")) == 2
    with Broker(data=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert describe(client) == {(("user", "al ice"),): {PRODUCE: 9.0}}
        users = client.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None).results
        assert [len(user.credential_infos) for user in users] == [2]


def test_the_answer_names_the_entities(client: RawClient) -> None:
    answer = client.ask(
        Api.ALTER_CLIENT_QUOTAS, 1,
        entries=[entry({"user": None, "client-id": "app"}, (PRODUCE, 1.0))], validate_only=False,
    )  # fmt: skip
    (done,) = answer.entries
    assert [(part.entity_type, part.entity_name) for part in done.entity] == [("user", None), ("client-id", "app")]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (entry({}, (PRODUCE, 1.0)), "Invalid empty client quota entity"),
        (entry({"group": "g"}, (PRODUCE, 1.0)), "Unhandled client quota entity type: group"),
        (entry({"user": ""}, (PRODUCE, 1.0)), "Empty user not supported"),
        (entry({"user": "a", "ip": "1.1.1.1"}, (PRODUCE, 1.0)), "Invalid quota entity combination"),
        (entry({"ip": "no.such.host.invalid"}, ("connection_creation_rate", 1.0)), "not a valid IP or resolvable host"),
        (entry({"ip": "not an ip"}, ("connection_creation_rate", 1.0)), "not a valid IP or resolvable host"),
        (entry({"ip": "a" * 300}, ("connection_creation_rate", 1.0)), "not a valid IP or resolvable host"),
        (entry({"user": "bob"}, ("unknown", 1.0)), "Invalid configuration key unknown"),
        (entry({"user": "bob"}, ("SCRAM-SHA-256", 1.0)), "Invalid configuration key SCRAM-SHA-256"),
        (entry({"user": "bob"}, ("connection_creation_rate", 1.0)), "Invalid configuration key"),
        (entry({"user": "bob"}, (PRODUCE, -1.0)), "must be greater than 0"),
        (entry({"user": "bob"}, (PRODUCE, math.nan)), "must be greater than 0"),
        (entry({"user": "bob"}, (PRODUCE, math.inf)), "too large"),
        (entry({"user": "bob"}, (PRODUCE, 0.5)), "cannot be a fractional value"),
        (entry({"user": "bob"}, (CONSUME, 1.0), (PRODUCE, -1.0)), "must be greater than 0"),
        (entry({"user": "bob"}, (PRODUCE, 1.0), (PRODUCE, 1.0)), "Duplicate quota key"),
        (entry([("user", "bob"), ("user", "carol")], (PRODUCE, 1.0)), "duplicate entity entry user"),
    ],
)
def test_a_bad_entity_fails_alone_and_changes_nothing(client: RawClient, bad: dict[str, Any], message: str) -> None:
    failed, done = alter(client, bad, entry({"user": "alice"}, (PRODUCE, 1.0)))
    assert failed[0] == ErrorCode.invalid_request
    assert message in failed[1]
    assert done == OK
    assert describe(client) == {(("user", "alice"),): {PRODUCE: 1.0}}


def test_an_entity_that_the_request_names_twice_keeps_its_quotas(client: RawClient) -> None:
    alter(client, entry({"user": "alice"}, (PRODUCE, 1.0)))
    answers = alter(
        client,
        entry({"user": "alice"}, (PRODUCE, 2.0)),
        entry({"user": "bob"}, (PRODUCE, 3.0)),
        entry({"user": "alice"}, (CONSUME, 2.0)),
    )
    assert [code for code, _ in answers] == [ErrorCode.invalid_request, ErrorCode.none]
    assert "duplicate entity" in answers[0][1]
    assert describe(client) == {(("user", "alice"),): {PRODUCE: 1.0}, (("user", "bob"),): {PRODUCE: 3.0}}


def test_validate_only_checks_and_changes_nothing(client: RawClient) -> None:
    good, bad = entry({"user": "alice"}, (PRODUCE, 1.0)), entry({"user": "bob"}, (PRODUCE, -1.0))
    answers = alter(client, good, bad, validate_only=True)
    assert [code for code, _ in answers] == [ErrorCode.none, ErrorCode.invalid_request]
    assert describe(client) == {}


def test_removing_a_quota_that_is_not_there_is_no_error(client: RawClient) -> None:
    assert alter(client, entry({"user": "alice"}, (PRODUCE, None), ("unknown", None))) == [OK]
    assert describe(client) == {}


def test_names_that_a_path_cannot_have(client: RawClient) -> None:
    names = ["..", ".", "a/b", "<default>", "ünï", " ", "%", "+"]
    assert alter(client, *(entry({"client-id": name}, (PRODUCE, 1.0)) for name in names)) == [OK] * len(names)
    assert set(describe(client)) == {(("client-id", name),) for name in names}


def test_a_request_with_too_many_entities(client: RawClient) -> None:
    entries = [entry({"user": f"u{number}"}, (PRODUCE, 1.0)) for number in range(MOST_AT_ONCE + 1)]
    answers = alter(client, *entries)
    assert {code for code, _ in answers} == {ErrorCode.policy_violation}
    assert len(answers) == MOST_AT_ONCE + 1
    assert describe(client) == {}


def test_ten_thousand_entities_by_one_request(client: RawClient) -> None:
    entries = [entry({"user": f"u{number}"}, (PRODUCE, 1.0 + number)) for number in range(MOST_AT_ONCE)]
    assert set(alter(client, *entries)) == {OK}
    assert len(describe(client)) == MOST_AT_ONCE
    assert describe(client, ("user", Match.EXACT, "u777")) == {(("user", "u777"),): {PRODUCE: 778.0}}


# -- filters


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "a")], ErrorCode.invalid_request),
        ([("user", 0, "a"), ("user", 1, None)], ErrorCode.invalid_request),
        ([("group", 0, "a")], ErrorCode.unsupported_version),
        ([("user", 0, None)], ErrorCode.invalid_request),
        ([("user", 1, "a")], ErrorCode.invalid_request),
        ([("user", 2, "a")], ErrorCode.invalid_request),
        ([("user", 3, None)], ErrorCode.invalid_request),
        ([("user", -1, None)], ErrorCode.invalid_request),
        ([("user", 2, None), ("ip", 2, None)], ErrorCode.invalid_request),
    ],
)
def test_filters_that_cannot_be(client: RawClient, components: list[Any], code: ErrorCode) -> None:
    answer = ask(client, *components)
    assert answer.error_code == code
    assert answer.error_message
    assert answer.entries is None


def plainly_matches(components: list[Component], entity: Entity, *, is_strict: bool) -> bool:
    """The rules of a filter, one after the other."""
    has = {kind: name for kind, name in zip(TYPES, entity, strict=True) if name is not None}
    if is_strict and set(has) != {component.entity_type for component in components}:
        return False
    for kind, how, name in components:
        if kind not in has:
            return False
        if how == Match.EXACT and has[kind] != name:
            return False
        if how == Match.DEFAULT and has[kind] is not DEFAULT:
            return False
    return True


some_names = st.sampled_from(["a", "b", DEFAULT, None])
some_entities = st.builds(lambda user, client_id: Entity(user, client_id), some_names, some_names) | some_names.map(
    lambda name: Entity(ip=name)
)
component = st.sampled_from([(Match.EXACT, "a"), (Match.EXACT, "b"), (Match.DEFAULT, None), (Match.ANY, None)])
some_filters = st.dictionaries(st.sampled_from(["user", "client-id"]), component) | st.dictionaries(
    st.just("ip"), component
)


@given(some_filters, st.lists(some_entities), st.booleans())
def test_filters_match_what_a_plain_model_matches(wanted: Any, entities: list[Entity], is_strict: bool) -> None:
    components = [Component(kind, how, name) for kind, (how, name) in wanted.items()]
    quota_filter = QuotaFilter(components, is_strict=is_strict)
    for entity in entities:
        assert quota_filter.matches(entity) == plainly_matches(components, entity, is_strict=is_strict)


# -- rights


def test_a_client_without_rights_gets_and_changes_nothing() -> None:
    config = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
    with Broker(config=config) as broker, RawClient(broker.bootstrap_servers) as client:
        answer = ask(client)
        assert (answer.error_code, answer.entries) == (ErrorCode.cluster_authorization_failed, None)
        for entries in ([entry({"user": "a"}, (PRODUCE, 1.0))], [entry({"group": "g"})] * 2):
            answers = alter(client, *entries)
            assert [code for code, _ in answers] == [ErrorCode.cluster_authorization_failed] * len(entries)
        assert len(broker.core.client_quotas) == 0
