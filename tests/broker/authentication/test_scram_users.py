"""The cache of SCRAM users."""

import pytest

from headrace.broker.authentication.scram_users import ScramUsers, entity_of
from headrace.security.sasl.scram import new_credential

SHA_256 = "SCRAM-SHA-256"


@pytest.mark.parametrize(
    ("entity", "name"),
    [
        ("a+b", "a b"),
        ("a%20b", "a b"),
        ("a%2Bb", "a+b"),
        ("CN%3Dx%2CO%3Dy", "CN=x,O=y"),
        ("%FF", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_names_in_the_tree_are_read_as_kafka_reads_them(entity, name):
    """Java's URLDecoder takes a plus for a blank: a tool that writes one must get a user that can log in."""
    users = ScramUsers()
    users.put(entity, {SHA_256: new_credential(SHA_256, "secret").to_text()})
    assert list(users) == [name]
    users.keep_only([entity])
    assert list(users) == [name]
    users.put(entity_of(name), {})
    assert list(users) == []
