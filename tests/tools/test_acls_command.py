"""``headrace acls``: Kafka's flags and words. The expected outputs are those of Apache Kafka 4.3's tool."""

import builtins

import pytest

from headrace import Admin, Broker
from headrace.security.acls import AclFilter

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
PREFIXED_NAMES = ("--resource-pattern-type", "prefixed")
TOPIC = "`ResourcePattern(resourceType=TOPIC, name=t1, patternType=LITERAL)`"


@pytest.fixture(scope="module")
def broker():
    with Broker(config=SETTINGS) as broker:
        yield broker


@pytest.fixture
def acls(tool, broker):
    yield lambda *arguments: tool("acls", *arguments)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_acls([AclFilter()])


def entry(user, operation, *, host="*", permission="ALLOW"):
    return f"(principal=User:{user}, host={host}, operation={operation}, permissionType={permission})"


def test_add_in_kafkas_words(acls):
    done = acls(
        "--add", "--allow-principal", "User:alice", "--operation", "Read", "--operation", "create", "--topic", "t1"
    )
    assert (done.code, done.err) == (0, "")
    assert (
        done.out == f"Adding ACLs for resource {TOPIC}: \n \t{entry('alice', 'READ')}\n\t{entry('alice', 'CREATE')}\n\n"
    )


def test_an_acl_that_exists_is_not_added_again(acls):
    acls("--add", "--allow-principal", "User:bob", "--topic", "t1", "--operation", "Describe")
    done = acls("--add", "--allow-principal", "User:bob", "--consumer", "--topic", "t1", "--group", "g")
    assert done.lines[0] == (
        "Acl (pattern=ResourcePattern(resourceType=TOPIC, name=t1, patternType=LITERAL), entry="
        f"{entry('bob', 'DESCRIBE')}) already exists."
    )
    assert done.lines[1:3] == [f"Adding ACLs for resource {TOPIC}: ", f" \t{entry('bob', 'READ')}"]
    assert "resourceType=GROUP, name=g, patternType=LITERAL" in done.out


def test_names_with_a_slash(acls):
    """A prefix with a slash allows, a name with a slash denies; both are in force and listed."""
    for arguments in (
        ("--allow-principal", "User:CN=a/b", "--operation", "Read", "--group", "team/", *PREFIXED_NAMES),
        ("--deny-principal", "User:CN=a/b", "--operation", "Read", "--group", "team/secret"),
        ("--allow-principal", "User:CN=a/b", "--operation", "Write", "--transactional-id", "app/0"),
    ):
        done = acls("--add", *arguments)
        assert (done.code, done.err) == (0, "")
    listed = {(acl["name"], acl["patternType"], acl["permissionType"]) for acl in acls("--list", "--json").value}
    assert listed == {("team/", "PREFIXED", "ALLOW"), ("team/secret", "LITERAL", "DENY"), ("app/0", "LITERAL", "ALLOW")}
    done = acls(
        "--remove", "--force", "--deny-principal", "User:CN=a/b", "--operation", "Read", "--group", "team/secret"
    )
    assert done.code == 0
    assert acls("--list", "--group", "team/secret", "--json").value == []


def test_the_cluster_with_and_without_its_name(acls):
    for name in ((), ("kafka-cluster",)):
        assert acls("--add", "--allow-principal", "User:a", "--operation", "Describe", "--cluster", *name).code == 0
        (listed,) = acls("--list", "--cluster", *name, "--json").value
        assert (listed["resourceType"], listed["name"]) == ("CLUSTER", "kafka-cluster")
    assert acls("--list", "--cluster", "other").code == 2


def test_the_roles(acls):
    done = acls(
        "--add", "--allow-principal", "User:p", "--producer", "--idempotent", "--topic", "t1", "--transactional-id", "x"
    )
    assert done.code == 0
    listed = {(acl["resourceType"], acl["operation"]) for acl in acls("--list", "--json").value}
    assert listed == {
        ("TOPIC", "WRITE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "CREATE"),
        ("TRANSACTIONAL_ID", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
        ("CLUSTER", "IDEMPOTENT_WRITE"),
    }


def test_list_in_kafkas_words(acls):
    acls("--add", "--allow-principal", "User:a", "--topic", "t1", "--operation", "Read")
    acls("--add", "--deny-principal", "User:b", "--deny-host", "10.0.0.1", "--topic", "t1", "--operation", "Write")
    denied = entry("b", "WRITE", host="10.0.0.1", permission="DENY")
    done = acls("--list")
    assert done.out == f"Current ACLs for resource {TOPIC}:\n\t{entry('a', 'READ')}\n\t{denied}\n\n"
    done = acls("--list", "--principal", "User:b", "--principal", "User:z")
    assert done.out == (
        f"ACLs for principal `User:b`\nCurrent ACLs for resource {TOPIC}:\n\t{denied}\n\nACLs for principal `User:z`\n"
    )
    assert acls("--list", "--topic", "nothing").out == ""


def test_what_applies_to_a_topic(acls):
    acls("--add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "prefixed")
    acls("--add", "--allow-principal", "User:a", "--topic", "*")
    acls("--add", "--allow-principal", "User:a", "--topic", "other")
    names = [acl["name"] for acl in acls("--list", "--topic", "t1", "--resource-pattern-type", "match", "--json").value]
    assert sorted(names) == ["*", "t"]


def test_remove_asks_first(acls, monkeypatch):
    acls("--add", "--allow-principal", "User:a", "--topic", "t1", "--operation", "Read", "--operation", "Write")
    monkeypatch.setattr(builtins, "input", lambda: "n")
    done = acls("--remove", "--topic", "t1")
    assert done.out == f"Are you sure you want to delete all ACLs for resource filter {TOPIC}? (y/n)\n"
    assert len(acls("--list", "--json").value) == 2
    monkeypatch.setattr(builtins, "input", lambda: "Y")
    done = acls("--remove", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t1")
    assert done.out == (
        f"Are you sure you want to remove ACLs: \n \t{entry('a', 'READ')}\n from resource filter {TOPIC}? (y/n)\n"
    )
    (left,) = acls("--list", "--json").value
    assert left["operation"] == "WRITE"


def test_without_an_answer_nothing_is_removed(acls, monkeypatch):
    def no_input():
        raise EOFError

    acls("--add", "--allow-principal", "User:a", "--topic", "t1")
    monkeypatch.setattr(builtins, "input", no_input)
    assert acls("--remove", "--topic", "t1").code == 0
    assert len(acls("--list", "--json").value) == 1


def test_remove_by_force_and_as_json(acls):
    acls("--add", "--allow-principal", "User:a", "--topic", "t1")
    assert acls("--remove", "--topic", "t1", "--json").code == 2
    (removed,) = acls("--remove", "--topic", "t1", "--force", "--json").value
    assert removed == {
        "resourceType": "TOPIC", "name": "t1", "patternType": "LITERAL", "principal": "User:a", "host": "*",
        "operation": "ALL", "permissionType": "ALLOW",
    }  # fmt: skip
    assert acls("--remove", "--topic", "t1", "--force").out == ""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("--list --add", "exactly one action: --list, --add, --remove"),
        ("--add --topic t", "You must specify one of: --allow-principal, --deny-principal"),
        ("--add --allow-principal User:a", "You must provide at least one resource"),
        ("--add --allow-principal User:a --operation ClusterAction --topic t", "TOPIC only supports operations [READ"),
        ("--add --allow-principal User:a --operation Fly --topic t", "'Fly' is not one of All, Read"),
        ("--add --allow-principal User:a --operation Any --topic t", "cannot have the operation Any"),
        ("--add --allow-principal alice --topic t", "'alice' is not a principal"),
        ("--add --allow-principal User:a --topic t --resource-pattern-type match", "'MATCH' is not valid when adding"),
        ("--add --allow-principal User:a --topic t --resource-pattern-type some", "not one of any, match, literal"),
        ("--list --allow-principal User:a", 'Option "--allow-principal" can\'t be used with option "--list"'),
        ("--add --principal User:a --topic t", "The --principal option is only available if --list is set"),
        ("--add --allow-principal User:a --producer --group g", "With --producer you must specify a --topic"),
        ("--add --allow-principal User:a --idempotent --topic t", "only available if --producer is set"),
        ("--add --allow-principal User:a --consumer --topic t", "With --consumer you must specify a --topic and"),
        ("--add --allow-principal User:a --producer --topic t --operation Read", 'Option "--operation" can\'t be used'),
    ],
)
def test_wrong_usage(acls, arguments, why):
    done = acls(*arguments.split())
    assert done.code == 2
    assert why in done.err


def test_a_broker_without_an_authorizer(tool):
    from headrace.tools.acls.command import main

    with Broker() as broker:
        assert main(["--bootstrap-server", broker.bootstrap_servers, "--list"]) == 1
