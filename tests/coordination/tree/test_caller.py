"""The identities of a client, and the forms of access control lists on the wire and on disk."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.security import make_digest_acl_credential

from headrace.coordination.acls import ALL_PERMISSIONS, CREATOR_ALL, OPEN_ACL, AclEntry, Permission
from headrace.coordination.interface import InvalidAclError
from headrace.coordination.server import jute
from headrace.coordination.server.messages import decode_acl, encode_acl
from headrace.coordination.tree import store
from headrace.coordination.tree.caller import SCHEMES, Caller, Identity, digest_of

texts = st.text(st.characters(exclude_categories=["Cs"]))
entries = st.builds(AclEntry, st.integers(-(2**31), 2**31 - 1), texts, texts)
acls = st.lists(entries, max_size=20).map(tuple)
numbers = st.integers(0, 255)
addresses = st.tuples(numbers, numbers, numbers, numbers)


@given(acls)
def test_a_list_is_read_from_the_wire_as_it_was_written(acl):
    reader = jute.Reader(encode_acl(acl) + b"\0")
    assert decode_acl(reader) == acl
    assert reader.remaining_bytes == 1


@given(acls)
def test_a_list_is_read_from_disk_as_it_was_written(acl):
    assert store.decode_acl(json.loads(json.dumps(store.encode_acl(acl)))) == acl


def test_open_lists_are_one_object():
    assert decode_acl(jute.Reader(encode_acl(tuple(AclEntry(*entry) for entry in OPEN_ACL)))) is OPEN_ACL
    assert store.decode_acl([[31, "world", "anyone"]]) is OPEN_ACL
    assert Caller("127.0.0.1").resolved((OPEN_ACL[0], AclEntry(31, "world", "anyone"))) is OPEN_ACL


@given(texts.filter(lambda text: ":" not in text), texts)
def test_a_digest_is_the_one_of_kazoo(user, password):
    assert digest_of(f"{user}:{password}") == make_digest_acl_credential(user, password)


@given(texts)
def test_a_digest_id_has_two_parts_as_java_counts_them(text):
    parts = text.split(":")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    assert SCHEMES["digest"].is_valid(text) == (len(parts) == 2)


@given(addresses, addresses, st.integers(0, 32))
def test_an_address_is_in_a_network_if_its_first_bits_are_the_same(mine, listed, bits):
    def number(address):
        return int.from_bytes(bytes(address))

    is_same = bits == 0 or number(mine) >> (32 - bits) == number(listed) >> (32 - bits)
    scheme = SCHEMES["ip"]
    network = ".".join(map(str, listed)) + f"/{bits}"
    assert scheme.is_valid(network)
    assert scheme.matches(".".join(map(str, mine)), network) == is_same


@given(texts, texts)
def test_no_text_of_an_address_does_harm(mine, listed):
    assert SCHEMES["ip"].matches(mine, listed) in (True, False)


def test_a_login_changes_what_was_computed_before():
    caller = Caller("127.0.0.1")
    acl = (AclEntry(Permission.READ, "digest", digest_of("a:b")),)
    assert not caller.may(Permission.READ, acl)
    with pytest.raises(InvalidAclError):
        caller.resolved((CREATOR_ALL,))
    assert caller.add(Identity("digest", digest_of("a:b")))
    assert caller.may(Permission.READ, acl)
    assert not caller.may(Permission.WRITE, acl)
    assert caller.resolved((CREATOR_ALL,)) == (AclEntry(ALL_PERMISSIONS, "digest", digest_of("a:b")),)


def test_permissions_of_all_entries_add_up():
    acl = (
        AclEntry(Permission.READ, "world", "anyone"),
        AclEntry(Permission.WRITE, "ip", "127.0.0.1"),
        AclEntry(Permission.ADMIN, "ip", "10.0.0.1"),
    )
    caller = Caller("127.0.0.1")
    assert [caller.may(permission, acl) for permission in (1, 2, 4, 8, 16, 17)] == [
        True,
        True,
        False,
        False,
        False,
        True,
    ]


def test_an_expected_hash_is_base64_of_sha1():
    user, _, digest = digest_of("super:test").partition(":")
    assert (user, len(base64.b64decode(digest))) == ("super", 20)
    assert digest == "D/InIHSb7yEEbrWz8b9l71RjZJU="  # as ZooKeeper prints it for super:test
