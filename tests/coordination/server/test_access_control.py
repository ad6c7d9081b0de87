"""Access control lists of a served tree: which request needs which permission, and what is hidden from whom.

``interop/zookeeper/alike.py`` compares the same rules with a real ZooKeeper, by random requests.
"""

import struct

import pytest
from connection_harness import ConnectionHarness
from kazoo import exceptions as refused
from kazoo.protocol.serialization import (
    SASL,
    CheckVersion,
    Create,
    Delete,
    Exists,
    GetACL,
    GetChildren,
    GetChildren2,
    GetData,
    SetACL,
    SetData,
    Transaction,
    write_string,
)
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, Permissions, make_digest_acl

from headrace.coordination.server.client_connection import CONNECT_WITHIN_MS
from headrace.coordination.server.jute import Malformed
from headrace.coordination.server.logins import MAX_CREDENTIAL_BYTES, Logins
from headrace.coordination.server.service import MAX_WITHOUT_LOGIN
from headrace.coordination.tree.caller import MAX_IDENTITIES, digest_of
from headrace.peer_log import PERIOD_MS

ADD_WATCH, SET_WATCHES, GET_ALL_CHILDREN_NUMBER, MULTI_READ, WHO_AM_I = 106, 101, 104, 22, 107
RECURSIVE = 1
ALICE, BOB, ROOT_USER = "alice:wonderland", "bob:builder", "super:secret"


class Raw:
    """A request that kazoo does not know."""

    def __init__(self, number: int, body: bytes) -> None:
        self.type, self._body = number, body

    def serialize(self) -> bytes:
        return self._body


def world(permissions: int) -> list[ACL]:
    return [ACL(permissions, Id("world", "anyone"))]


@pytest.fixture
def harness():
    return ConnectionHarness(logins=Logins(super_digest=digest_of(ROOT_USER)))


@pytest.fixture
def alice(harness):
    return harness.client(logins=(ALICE,))


@pytest.fixture
def bob(harness):
    return harness.client(logins=(BOB,))


def multi_read(path: str) -> Raw:
    read = struct.pack(">i?i", GetData.type, False, -1) + write_string(path) + b"\0"
    return Raw(MULTI_READ, read + struct.pack(">i?i", -1, True, -1))


NEEDED = [
    (Exists("/a/b", None), Permissions.READ),
    (GetData("/a/b", None), Permissions.READ),
    (GetChildren("/a/b", None), Permissions.READ),
    (GetChildren2("/a/b", None), Permissions.READ),
    (Raw(GET_ALL_CHILDREN_NUMBER, write_string("/a/b")), Permissions.READ),
    (SetData("/a/b", b"x", -1), Permissions.WRITE),
    (Create("/a/b/new", b"", OPEN_ACL_UNSAFE, 0), Permissions.CREATE),
    (Delete("/a/b/c", -1), Permissions.DELETE),
    (SetACL("/a/b", OPEN_ACL_UNSAFE, -1), Permissions.ADMIN),
    (CheckVersion("/a/b", -1), Permissions.READ),
]


@pytest.mark.parametrize(("request_", "permission"), NEEDED)
def test_a_request_needs_one_permission(harness, alice, request_, permission):
    for acl, is_permitted in ((world(permission), True), (world(Permissions.ALL & ~permission), False)):
        alice.ask(Create("/a", b"", OPEN_ACL_UNSAFE, 0))
        alice.ask(Create("/a/b", b"", OPEN_ACL_UNSAFE, 0))
        alice.ask(Create("/a/b/c", b"", OPEN_ACL_UNSAFE, 0))
        alice.ask(SetACL("/a/b", acl, -1))
        before = harness.host.tree.last_zxid
        if is_permitted:
            alice.ask(request_)
        else:
            with pytest.raises(refused.NoAuthError):
                alice.ask(request_)
            assert harness.host.tree.last_zxid == before
        cleaner = harness.client(logins=(ROOT_USER,))
        for path in ("/a/b/c", "/a/b/new", "/a/b", "/a"):
            if harness.host.tree.exists(path) is not None:
                cleaner.ask(Delete(path, -1))


def test_who_may_not_delete_is_not_told_what_exists(alice, bob):
    alice.ask(Create("/a", b"", CREATOR_ALL_ACL, 0))
    alice.ask(Create("/a/b", b"", CREATOR_ALL_ACL, 0))
    for path in ("/a/b", "/a/none"):
        with pytest.raises(refused.NoAuthError):
            bob.ask(Delete(path, -1))


def test_the_creator_of_a_znode_is_the_only_one_with_access(harness, alice, bob):
    alice.ask(Create("/a", b"mine", CREATOR_ALL_ACL, 0))
    assert alice.ask(GetData("/a", None))[0] == b"mine"
    for stranger in (bob, harness.client()):
        with pytest.raises(refused.NoAuthError):
            stranger.ask(GetData("/a", None))
    assert harness.client(logins=(BOB, ALICE)).ask(GetData("/a", None))[0] == b"mine"
    assert harness.client(logins=(ROOT_USER,)).ask(GetData("/a", None))[0] == b"mine"


def test_identities_end_with_the_connection(alice):
    alice.ask(Create("/a", b"mine", CREATOR_ALL_ACL, 0))
    again = alice.comes_back()
    with pytest.raises(refused.NoAuthError):
        again.ask(GetData("/a", None))
    again.log_in("digest", ALICE)
    assert again.ask(GetData("/a", None))[0] == b"mine"


def test_a_list_must_be_valid(harness, alice):
    entries = [
        ("world", "nobody"), ("digest", "alice"), ("digest", "a:b:c"), ("ip", "here"), ("ip", "1.2.3.4/33"),
        ("ip", "1.2.3.4/255.0.0.0"), ("ip", "fe80::1%lo"), ("kerberos", "alice"), ("super", ""), ("x509", "alice"),
    ]  # fmt: skip
    for acl in ([], *([ACL(31, Id(*entry))] for entry in entries)):
        with pytest.raises(refused.InvalidACLError):
            alice.ask(Create("/a", b"", acl, 0))
        with pytest.raises(refused.InvalidACLError):
            alice.ask(SetACL("/", acl, -1))
    with pytest.raises(refused.InvalidACLError):
        harness.client().ask(Create("/a", b"", CREATOR_ALL_ACL, 0))  # without a login, "auth" is nobody
    with pytest.raises(Malformed):
        alice.ask(Create("/a", b"", OPEN_ACL_UNSAFE * 1_001, 0))
    assert harness.host.tree.children("/") == []


def test_a_stored_list_has_no_duplicates_and_names_who_logged_in(alice):
    alice.log_in("digest", BOB)
    alice.ask(Create("/a", b"", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE, *READ_ACL_UNSAFE], 0))
    acl, _ = alice.ask(GetACL("/a"))
    assert acl == [make_digest_acl(*ALICE.split(":"), all=True), make_digest_acl(*BOB.split(":"), all=True),
                   *READ_ACL_UNSAFE]  # fmt: skip


def test_networks_and_addresses_are_compared_with_the_clients_address(alice):
    for index, (text, matches) in enumerate(
        [("127.0.0.1", True), ("127.0.0.0/8", True), ("0.0.0.0/0", True), ("127.0.0.2", False), ("::1", False)]
    ):
        alice.ask(Create(f"/{index}", b"", [ACL(Permissions.READ, Id("ip", text))], 0))
        if matches:
            alice.ask(GetData(f"/{index}", None))
        else:
            with pytest.raises(refused.NoAuthError):
                alice.ask(GetData(f"/{index}", None))


def test_hashes_are_shown_to_who_may_change_the_list(harness, alice, bob):
    alice.ask(Create("/a", b"", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE], 0))
    alice.ask(Create("/b", b"", CREATOR_ALL_ACL, 0))
    shown = Id("digest", digest_of(ALICE))
    assert alice.ask(GetACL("/a"))[0][0].id == shown
    assert harness.client(logins=(ROOT_USER,)).ask(GetACL("/a"))[0][0].id == shown
    assert bob.ask(GetACL("/a"))[0][0].id == Id("digest", "alice:x")
    with pytest.raises(refused.NoAuthError):
        bob.ask(GetACL("/b"))


def test_a_change_of_the_list_has_a_version_of_its_own(alice):
    alice.ask(Create("/a", b"", OPEN_ACL_UNSAFE, 0))
    stat = alice.ask(SetACL("/a", CREATOR_ALL_ACL, 0))
    assert (stat.aversion, stat.version) == (1, 0)
    with pytest.raises(refused.BadVersionError):
        alice.ask(SetACL("/a", OPEN_ACL_UNSAFE, 0))
    assert alice.ask(SetACL("/a", OPEN_ACL_UNSAFE, 1)).aversion == 2


def test_a_multi_fails_at_the_operation_without_permission(harness, alice, bob):
    alice.ask(Create("/a", b"", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE], 0))
    results = bob.ask(Transaction([Create("/b", b"", OPEN_ACL_UNSAFE, 0), SetData("/a", b"x", -1), Delete("/b", -1)]))
    assert [type(result) for result in results] == [
        refused.RolledBackError, refused.NoAuthError, refused.RuntimeInconsistency
    ]  # fmt: skip
    assert harness.host.tree.children("/") == ["a"]
    # A znode that the same multi creates protects its children, too.
    results = bob.ask(
        Transaction([Create("/b", b"", world(Permissions.READ), 0), Create("/b/c", b"", OPEN_ACL_UNSAFE, 0)])
    )
    assert isinstance(results[1], refused.NoAuthError)


def test_a_multi_read_has_an_error_per_znode(alice, bob):
    alice.ask(Create("/a", b"", CREATOR_ALL_ACL, 0))
    answer = bob.ask(multi_read("/a"))
    assert struct.unpack_from(">i?ii", answer) == (-1, False, -102, -102)


def test_a_session_ends_with_its_ephemerals_whoever_may_delete_them(harness, alice):
    alice.ask(Create("/e", b"", world(Permissions.READ), 1))
    alice.close()
    assert harness.host.tree.exists("/e") is None


# Watches


def test_events_go_to_who_may_read(harness, alice, bob):
    """CVE-2024-23944: a recursive watch told the names of protected znodes."""
    bob.ask(Raw(ADD_WATCH, write_string("/") + struct.pack(">i", RECURSIVE)))
    alice.ask(Create("/open", b"", OPEN_ACL_UNSAFE, 0))
    alice.ask(Create("/secret", b"", CREATOR_ALL_ACL, 0))
    alice.ask(SetData("/secret", b"x", -1))
    alice.ask(Delete("/secret", -1))
    assert bob.take_events() == [("created", "/open")]


def test_a_watch_fires_for_who_could_read_when_the_list_was_another(alice, bob):
    alice.ask(Create("/a", b"", OPEN_ACL_UNSAFE, 0))
    bob.ask(GetData("/a", True))
    bob.ask(GetChildren("/a", True))
    alice.ask(SetACL("/a", CREATOR_ALL_ACL, -1))
    alice.ask(SetData("/a", b"x", -1))
    alice.ask(Create("/a/b", b"", OPEN_ACL_UNSAFE, 0))
    assert bob.take_events() == []


def test_a_refused_read_sets_no_watch(harness, alice, bob):
    alice.ask(Create("/a", b"", CREATOR_ALL_ACL, 0))
    for request in (GetData("/a", True), GetChildren2("/a", True), Exists("/a", True)):
        with pytest.raises(refused.NoAuthError):
            bob.ask(request)
    assert len(harness.host.tree.watches) == 0


def test_restored_watches_do_not_tell_what_exists(alice, bob):
    alice.ask(Create("/a", b"", CREATOR_ALL_ACL, 0))
    paths = b"".join(struct.pack(">i", 1) + write_string(path) for path in ("/a", "/a", "/a"))
    bob.ask(Raw(SET_WATCHES, struct.pack(">q", 0) + paths))
    seen = bob.events
    again = bob.comes_back()
    missing = b"".join(struct.pack(">i", 1) + write_string(path) for path in ("/no", "/no", "/no"))
    again.ask(Raw(SET_WATCHES, struct.pack(">q", 0) + missing))
    assert [kind for kind, _ in seen] == [kind for kind, _ in again.events] == ["deleted", "deleted"]


# Logging in


def test_who_am_i_names_users_without_their_hashes(alice, harness):
    def who(client):
        answer = client.ask(Raw(WHO_AM_I, b""))
        assert digest_of(ALICE).encode() not in answer
        return answer

    address = write_string("ip") + write_string("127.0.0.1")
    user = write_string("digest") + write_string("alice")
    assert who(alice) == struct.pack(">i", 2) + address + user
    assert struct.unpack_from(">i", who(harness.client(logins=(ROOT_USER,)))) == (3,)


@pytest.mark.parametrize(
    ("scheme", "credential"),
    [("kerberos", b"x"), ("world", b"anyone"), ("super", b""), ("auth", b""), ("x509", b"CN=me"), ("digest", None),
     ("digest", b"a" * (MAX_CREDENTIAL_BYTES + 1)), ("", b"")],
)  # fmt: skip
def test_a_failed_login_closes_the_connection(harness, scheme, credential):
    client = harness.client()
    data = struct.pack(">i", -1) if credential is None else struct.pack(">i", len(credential)) + credential
    with pytest.raises(refused.AuthFailedError):
        client.ask(Raw(100, struct.pack(">i", 0) + write_string(scheme) + data))
    assert client.is_closed


def test_a_flood_of_failed_logins_is_one_line(harness, caplog):
    for _ in range(100):
        client = harness.client()
        with pytest.raises(refused.AuthFailedError):
            client.log_in("ker\nberos", "x")
    (line,) = caplog.messages
    assert line.startswith(r"failed login of 127.0.0.1:5000: the scheme ker\nberos is unknown")
    harness.clock.advance(PERIOD_MS)
    with pytest.raises(refused.AuthFailedError):
        harness.client().log_in("other", "x")
    assert caplog.messages[1].endswith("99 more times in 10 s")


def test_a_client_has_a_bounded_number_of_identities(harness):
    client = harness.client()
    for number in range(MAX_IDENTITIES - 1):
        client.log_in("digest", f"user-{number}:x")
    client.log_in("digest", "user-0:x")
    client.log_in("ip", "")
    with pytest.raises(refused.AuthFailedError):
        client.log_in("digest", "one:more")
    assert client.is_closed


def test_a_sasl_token_has_no_effect(harness, alice):
    alice.ask(Create("/a", b"", CREATOR_ALL_ACL, 0))
    client = harness.client()
    assert client.ask(SASL(b"token"))[0] is None
    with pytest.raises(refused.NoAuthError):
        client.ask(GetData("/a", None))


def test_a_tree_that_requires_a_login_answers_nothing_before():
    harness = ConnectionHarness(logins=Logins(super_digest=digest_of(ROOT_USER), requires_super=True))
    owner = harness.client(logins=(ROOT_USER,))
    owner.ask(Create("/a", b"", OPEN_ACL_UNSAFE, 0))
    for stranger in (harness.client(), harness.client(logins=(ALICE,)), harness.client(logins=("super:wrong",))):
        stranger.ping()
        with pytest.raises(refused.AuthFailedError):
            stranger.ask(GetData("/a", None))
        assert stranger.is_closed
        assert stranger.session_id not in harness.host.tree.sessions
    silent = harness.client()
    for _ in range(3):
        harness.passes(CONNECT_WITHIN_MS // 3)
        silent.ping()
        owner.ping()
    harness.passes(CONNECT_WITHIN_MS // 3)
    assert silent.is_closed
    assert list(harness.host.tree.sessions) == [owner.session_id]
    owner.connection.connection_lost()
    assert list(harness.host.tree.sessions) == [owner.session_id]


def test_strangers_do_not_keep_the_owner_out():
    harness = ConnectionHarness(logins=Logins(super_digest=digest_of(ROOT_USER), requires_super=True))
    owner = harness.client(logins=(ROOT_USER,))
    strangers = [harness.connection() for _ in range(MAX_WITHOUT_LOGIN + 5)]
    assert [stranger.is_closed for stranger in strangers] == [True] * 5 + [False] * MAX_WITHOUT_LOGIN
    again = harness.client(logins=(ROOT_USER,))
    for client in (owner, again):
        assert client.ask(GetChildren("/", None)) == []
    assert len(harness.service.connections) == MAX_WITHOUT_LOGIN + 1
