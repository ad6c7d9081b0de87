"""DescribeAcls, CreateAcls and DeleteAcls."""

import pytest
from acl_harness import (
    ALLOW,
    ALTER,
    ANY,
    CLUSTER,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    acl_broker,
    acl_filter,
    rule,
    without_rights,
)
from broker_harness import Client, all_versions, unique

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.raw_client import ClosedByPeer

NEWEST = 3


@pytest.fixture(scope="module")
def broker():
    with acl_broker() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with Client(broker.bootstrap_servers) as client:
        yield client
        client.ask(Api.DELETE_ACLS, NEWEST, filters=[acl_filter()])


def create(client, *rules, version=NEWEST):
    answers = client.ask(Api.CREATE_ACLS, version, creations=list(rules)).results
    return [answer.error_code for answer in answers]


def described(client, version=NEWEST, **fields):
    answer = client.ask(Api.DESCRIBE_ACLS, version, **acl_filter(**fields))
    assert answer.error_code == 0
    return {
        (resource.resource_type, resource.resource_name, resource.pattern_type): [
            (acl.principal, acl.host, acl.operation, acl.permission_type) for acl in resource.acls
        ]
        for resource in answer.resources
    }


@pytest.mark.parametrize("version", all_versions(Api.CREATE_ACLS))
def test_every_version(client, version):
    name = unique()
    assert create(client, rule(TOPIC, name, READ), rule(TOPIC, name, WRITE, DENY, host="10.0.0.1")) == [0, 0]
    assert described(client, version) == {
        (TOPIC, name, LITERAL): [("User:ANONYMOUS", "*", READ, ALLOW), ("User:ANONYMOUS", "10.0.0.1", WRITE, DENY)]
    }
    (result,) = client.ask(Api.DELETE_ACLS, version, filters=[acl_filter(operation=READ)]).filter_results
    assert result.error_code == 0
    (deleted,) = result.matching_acls
    assert (deleted.resource_name, deleted.pattern_type, deleted.operation) == (name, LITERAL, READ)
    assert described(client, version) == {(TOPIC, name, LITERAL): [("User:ANONYMOUS", "10.0.0.1", WRITE, DENY)]}


def test_filters_find_by_name_and_by_what_fits_the_name(client):
    create(client, rule(TOPIC, "pay", READ, pattern=PREFIXED), rule(TOPIC, "payments", READ), rule(GROUP, "pay", READ))
    assert list(described(client, kind=TOPIC, name="payments", pattern=MATCH)) == [
        (TOPIC, "payments", LITERAL),
        (TOPIC, "pay", PREFIXED),
    ]
    assert list(described(client, kind=TOPIC, name="pay")) == [(TOPIC, "pay", PREFIXED)]
    assert list(described(client, name="pay")) == [(TOPIC, "pay", PREFIXED), (GROUP, "pay", LITERAL)]
    assert described(client, principal="User:nobody") == {}


@pytest.mark.parametrize(
    "wrong",
    [
        rule(CLUSTER, "another", READ),
        rule(TOPIC, "", READ),
        rule(TOPIC, "a", READ, principal="alice"),
        rule(TOPIC, "a", READ, pattern=MATCH),
        rule(TOPIC, "a", READ, pattern=ANY),
        rule(ANY, "a", READ),
        rule(TOPIC, "a", ANY),
        rule(TOPIC, "a", 77),
        rule(77, "a", READ),
        rule(TOPIC, "a", READ, ANY),
    ],
    ids=lambda wrong: "-".join(map(str, wrong.values())),
)
def test_a_wrong_rule_is_refused_alone(client, wrong):
    assert create(client, wrong, rule(TOPIC, "good", READ)) == [ErrorCode.invalid_request, 0]
    assert list(described(client)) == [(TOPIC, "good", LITERAL)]


@pytest.mark.parametrize("name", ["a/b", "team/", "/", "..", "a\nb"])
@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED])
def test_every_name_can_have_rules(client, name, pattern):
    """Kafka's AclAuthorizer refused names with a slash, Kafka 4.3 accepts all of them."""
    assert create(client, rule(TOPIC, name, READ, pattern=pattern), rule(GROUP, name, READ, pattern=pattern)) == [0, 0]
    assert list(described(client, kind=TOPIC)) == [(TOPIC, name, pattern)]
    assert list(described(client, name=name)) == [(TOPIC, name, pattern), (GROUP, name, pattern)]
    (result,) = client.ask(Api.DELETE_ACLS, NEWEST, filters=[acl_filter(kind=GROUP)]).filter_results
    assert [acl.resource_name for acl in result.matching_acls] == [name]
    assert list(described(client)) == [(TOPIC, name, pattern)]


@pytest.mark.parametrize("api", [Api.DESCRIBE_ACLS, Api.DELETE_ACLS], ids=lambda api: api.label)
@pytest.mark.parametrize("fields", [{"operation": 77}, {"kind": 77}, {"pattern": 77}, {"permission": 77}], ids=str)
def test_a_filter_that_nobody_understands_closes_the_connection(broker, client, api, fields):
    create(client, rule(TOPIC, "a", READ))
    given = acl_filter(**fields)
    with Client(broker.bootstrap_servers) as other, pytest.raises(ClosedByPeer):
        other.ask(api, NEWEST, **(given if api is Api.DESCRIBE_ACLS else {"filters": [given]}))
    assert list(described(client)) == [(TOPIC, "a", LITERAL)]


def test_a_rule_that_two_filters_find_is_in_both_answers(client):
    create(client, rule(TOPIC, "a", READ), rule(GROUP, "a", READ))
    filters = [acl_filter(kind=TOPIC), acl_filter(name="a"), acl_filter(name="b")]
    results = client.ask(Api.DELETE_ACLS, NEWEST, filters=filters).filter_results
    assert [[acl.resource_type for acl in result.matching_acls] for result in results] == [[TOPIC], [TOPIC, GROUP], []]
    assert described(client) == {}


def test_too_many_at_once(client):
    rules = [rule(TOPIC, f"t{number}", READ) for number in range(10_001)]
    codes = create(client, *rules)
    assert set(codes) == {ErrorCode.policy_violation}
    assert len(codes) == 10_001
    assert described(client) == {}


def test_many_at_once(client):
    assert set(create(client, *(rule(TOPIC, f"t{number}", READ) for number in range(1_500)))) == {0}
    assert len(described(client)) == 1_500
    (result,) = client.ask(Api.DELETE_ACLS, NEWEST, filters=[acl_filter(kind=TOPIC)]).filter_results
    assert len(result.matching_acls) == 1_500


def test_rights(broker, client):
    create(client, rule(CLUSTER, "kafka-cluster", DESCRIBE))
    with without_rights(broker):
        assert described(client)
        assert create(client, rule(TOPIC, "a", READ)) == [ErrorCode.cluster_authorization_failed]
        (result,) = client.ask(Api.DELETE_ACLS, NEWEST, filters=[acl_filter()]).filter_results
        assert (result.error_code, result.matching_acls) == (ErrorCode.cluster_authorization_failed, ())
    create(client, rule(CLUSTER, "kafka-cluster", ALTER))
    with without_rights(broker):
        assert create(client, rule(TOPIC, "a", READ)) == [0]
        client.ask(Api.DELETE_ACLS, NEWEST, filters=[acl_filter()])
        answer = client.ask(Api.DESCRIBE_ACLS, NEWEST, **acl_filter())
        assert (answer.error_code, answer.resources) == (ErrorCode.cluster_authorization_failed, ())


def test_rules_survive_a_restart(tmp_path):
    with acl_broker(log_dirs=str(tmp_path)) as broker, Client(broker.bootstrap_servers) as client:
        create(client, rule(TOPIC, "orders", READ), rule(GROUP, "g", READ, pattern=PREFIXED))
        create(client, rule(GROUP, "team/secret", READ, DENY, principal="User:CN=a/b"))
    with acl_broker(log_dirs=str(tmp_path)) as broker, Client(broker.bootstrap_servers) as client:
        found = described(client)
        assert set(found) == {(TOPIC, "orders", LITERAL), (GROUP, "g", PREFIXED), (GROUP, "team/secret", LITERAL)}
        assert found[GROUP, "team/secret", LITERAL] == [("User:CN=a/b", "*", READ, DENY)]


def test_without_an_authorizer():
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        answer = client.ask(Api.DESCRIBE_ACLS, NEWEST, **acl_filter())
        assert (answer.error_code, answer.error_message) == (54, "No Authorizer is configured on the broker")
        assert create(client, rule(TOPIC, "a", READ)) == [ErrorCode.security_disabled]
        (result,) = client.ask(Api.DELETE_ACLS, NEWEST, filters=[acl_filter()]).filter_results
        assert result.error_code == ErrorCode.security_disabled
