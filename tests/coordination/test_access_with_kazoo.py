"""kazoo's clients protect their znodes, on our server as on a real ZooKeeper."""

import asyncio
import uuid
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, BadVersionError, InvalidACLError, NoAuthError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_digest_acl

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.xdist_group("zookeeper")

PATIENCE_S = 20
ALICE = ("digest", "alice:wonderland")


@contextmanager
def connected(address, **options):
    client = KazooClient(address, **options)
    client.start(PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def protect_and_try(address):
    root = f"/access-{uuid.uuid4().hex}"
    with connected(address, auth_data=[ALICE]) as alice, connected(address) as eve:
        alice.create(root, b"x", acl=CREATOR_ALL_ACL)
        for attempt in (eve.get, eve.get_children, eve.exists, eve.get_acls):
            with pytest.raises(NoAuthError):
                attempt(root)
        with pytest.raises(NoAuthError):
            eve.create(f"{root}/child")
        with pytest.raises(NoAuthError):
            eve.set_acls(root, OPEN_ACL_UNSAFE)
        eve.add_auth("digest", "alice:guess")
        with pytest.raises(NoAuthError):
            eve.get(root)
        readable = [make_digest_acl("alice", "wonderland", all=True), *READ_ACL_UNSAFE]
        assert alice.set_acls(root, readable, version=0).acl_version == 1
        with pytest.raises(BadVersionError):
            alice.set_acls(root, readable, version=0)
        assert eve.get(root)[0] == b"x"
        assert [entry.id.id for entry in eve.get_acls(root)[0]] == ["alice:x", "anyone"]
        assert alice.get_acls(root)[0] == readable
        with pytest.raises(InvalidACLError):
            eve.set_acls(root, [])
        with pytest.raises(NoAuthError):
            eve.set_acls(root, OPEN_ACL_UNSAFE)
        eve.add_auth(*ALICE)
        eve.delete(root)
    with connected(address) as client, pytest.raises(AuthFailedError):
        client.add_auth("unknown-scheme", "x")


async def test_who_is_not_on_the_list_has_no_access(remote):
    await asyncio.to_thread(protect_and_try, remote.address)


def test_lists_survive_kill_9(tmp_path):
    with BrokerProcess(tmp_path, command="zookeeper") as server:
        with connected(server.address, auth_data=[ALICE]) as alice:
            alice.create("/a", b"x", acl=CREATOR_ALL_ACL)
        server.kill()
    with BrokerProcess(tmp_path, command="zookeeper") as server:
        with connected(server.address) as eve, pytest.raises(NoAuthError):
            eve.get("/a")
        with connected(server.address, auth_data=[ALICE]) as alice:
            assert alice.get("/a")[0] == b"x"


def test_a_login_is_repeated_after_a_lost_connection(tmp_path):
    with BrokerProcess(tmp_path, command="zookeeper") as server, connected(server.address, auth_data=[ALICE]) as alice:
        alice.create("/a", b"x", acl=CREATOR_ALL_ACL)
        session_id = alice.client_id[0]
        alice._connection._socket.shutdown(2)
        assert alice.retry(alice.get, "/a")[0] == b"x"
        assert alice.client_id[0] == session_id


def test_the_super_user_may_do_everything(tmp_path):
    digest = "DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU="
    with BrokerProcess(tmp_path, "-o", digest, command="zookeeper") as server:
        with connected(server.address, auth_data=[ALICE]) as alice:
            alice.create("/a", b"x", acl=CREATOR_ALL_ACL)
        with connected(server.address, auth_data=[("digest", "super:test")]) as root:
            assert root.get("/a")[0] == b"x"
            root.delete("/a")
