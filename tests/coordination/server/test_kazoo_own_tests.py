"""kazoo's own tests of logins and access control lists pass on our server, as they pass on ZooKeeper 3.9.

kazoo's package contains its tests. They start a ZooKeeper by themselves; here they get the
address of our server instead.
"""

import gc
import sys
import unittest
from types import SimpleNamespace

import pytest

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.xdist_group("zookeeper")

TESTS = {
    "TestAuthentication": (
        "test_auth",
        "test_connect_auth",
        "test_unicode_auth",
        "test_invalid_auth",
        "test_async_auth",
        "test_async_auth_failure",
        "test_add_auth_on_reconnect",
    ),
    "TestClient": (
        "test_create_acl_duplicate",
        "test_create_acl_empty_list",
        "test_create_makepath_incompatible_acls",
        "test_get_acls",
        "test_get_acls_invalid_arguments",
        "test_invalid_auth",
        "test_set_acls",
        "test_set_acls_empty",
        "test_set_acls_invalid_arguments",
        "test_set_acls_no_node",
    ),
    "TestClientTransactions": ("test_default_acl",),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    words = ("-o", "4lw.commands.whitelist=*")
    with BrokerProcess(tmp_path_factory.mktemp("tree"), *words, command="zookeeper") as process:
        yield process


@pytest.fixture(scope="module")
def tests_of_kazoo():
    """The module with the tests. What starts a ZooKeeper needs a package that we do not have, so it is left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "kazoo.testing.common", SimpleNamespace(ZookeeperCluster=None))
        from kazoo.tests import test_client

        yield test_client


@pytest.mark.filterwarnings(
    "ignore:No chroot path exists", "ignore:Passing retry configuration", "ignore:unclosed <socket:ResourceWarning"
)
@pytest.mark.parametrize(("group", "name"), [(group, name) for group, names in TESTS.items() for name in names])
def test_it_passes(server, tests_of_kazoo, group, name):
    ours = {"cluster": [SimpleNamespace(address=server.address, running=True)]}
    result = unittest.TestResult()
    type(group, (getattr(tests_of_kazoo, group),), ours)(name).run(result)
    gc.collect()  # some of the tests close their clients in this way
    assert (result.testsRun, result.errors, result.failures, result.skipped) == (1, [], [], [])


def test_every_test_of_access_is_listed(tests_of_kazoo):
    named = {
        (group, name)
        for group in ("TestAuthentication", "TestClient", "TestClientTransactions")
        for name in vars(getattr(tests_of_kazoo, group))
        if name.startswith("test_") and ("auth" in name or "acl" in name)
    }
    assert named == {(group, name) for group, names in TESTS.items() for name in names}
