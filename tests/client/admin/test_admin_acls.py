"""The admin client lists, adds and removes ACLs."""

import pytest

from headrace import Admin, Broker
from headrace.client.errors import BrokerError, ErrorCode
from headrace.security.acls import AclBinding, AclFilter, AclOperation, PatternType, Permission, ResourceType

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
READ = AclBinding.of(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
DENY = AclBinding.of(
    ResourceType.GROUP, "g", "User:*", AclOperation.ALL, Permission.DENY, pattern_type=PatternType.PREFIXED, host="::1"
)


@pytest.fixture(scope="module")
def broker():
    with Broker(config=SETTINGS) as broker:
        yield broker


@pytest.fixture
def admin(broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin
        admin.delete_acls([AclFilter()])


def test_the_life_of_acls(admin):
    assert admin.create_acls([READ, DENY, READ]) == {READ: None, DENY: None}
    assert set(admin.describe_acls()) == {READ, DENY}
    assert admin.describe_acls(AclFilter(ResourceType.TOPIC)) == [READ]
    wanted, other = AclFilter(principal="User:alice"), AclFilter(principal="User:bob")
    assert admin.delete_acls([wanted, other]) == {wanted: [READ], other: []}
    assert admin.describe_acls() == [DENY]


def test_a_wrong_acl_has_its_own_error(admin):
    wrong = AclBinding.of(ResourceType.CLUSTER, "another", "User:a", AclOperation.ALTER)
    results = admin.create_acls([wrong, READ])
    assert results.errors[wrong].code is ErrorCode.invalid_request
    assert results.ok == {READ: None}


def test_without_an_authorizer():
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with pytest.raises(BrokerError, match="No Authorizer is configured") as error:
            admin.describe_acls()
        assert error.value.code is ErrorCode.security_disabled
        assert admin.create_acls([READ]).errors[READ].code is ErrorCode.security_disabled
        assert admin.delete_acls([AclFilter()]).errors[AclFilter()].code is ErrorCode.security_disabled
