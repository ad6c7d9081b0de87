"""Holes of Apache Kafka, its clients and ZooKeeper that are known: each has a test here that names it.

The table says what must not be possible. A test names the number in its docstring or in a comment, so that a search for
the number finds the test.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The folders whose files are or feed tests.
_TESTS = ("tests", "interop/acls")
KNOWN = {
    "CVE-2017-12610": "a client logs in as one user and acts as another, by an authorization id",
    "CVE-2018-1288": "a client's fetch with a replica id moves the high watermark",
    "CVE-2018-17196": "a crafted Produce writes to a transaction without the right to its transactional id",
    "CVE-2021-38153": "the time of a comparison tells how much of a password is right",
    "CVE-2022-34917": "a client that has not logged in makes the broker allocate much memory",
    "CVE-2023-34455": "a compressed batch announces a size, and the process reserves memory for it",
    "CVE-2023-25194": "a JAAS line of a client's makes the process load a class",
    "CVE-2024-23944": "a watch tells a client the names of znodes that the client may not read",
    "CVE-2024-27309": "the removal of one ACL removes others",
    "CVE-2024-31141": "a configuration of a client's makes the process read files or its environment",
    "CVE-2024-56128": "a SCRAM login goes on with a nonce that is not the server's",
    "CVE-2025-27817": "the URL of a token or of keys reads a file, or an address inside the network",
    "CVE-2025-27818": "a JAAS line with an LDAP module makes the process load a class",
    "CVE-2025-27819": "a JAAS line with a JNDI module makes the broker load a class",
}
#: Holes without a number, each with the test that shows that it is closed.
WITHOUT_NUMBER = {
    "a JWT is accepted without verification: a broker that could not verify tokens does not start": (
        "tests/broker/configs/test_sasl_rules.py",
        "test_tokens_could_not_be_verified",
    ),
    "a JWT is accepted without verification: a token that no key of the provider has signed": (
        "tests/security/sasl/test_oauthbearer.py",
        "test_signed_tokens_that_are_refused",
    ),
    "a decompression bomb: a small compressed batch fills the memory of a broker": (
        "tests/scenarios/test_bad_input.py",
        "test_a_decompression_bomb_is_refused_in_bounded_memory",
    ),
    "a decompression bomb: a small compressed batch fills the memory of its reader": (
        "tests/protocol/test_compression.py",
        "test_a_bomb_never_takes_more_than_the_limit",
    ),
}


@pytest.mark.parametrize("hole", WITHOUT_NUMBER)
def test_a_test_shows_that_it_is_closed(hole):
    file, name = WITHOUT_NUMBER[hole]
    assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {name}: {hole}"


@pytest.mark.parametrize("number", KNOWN)
def test_a_test_names_it(number):
    files = [file for folder in _TESTS for file in (ROOT / folder).rglob("*.py") if file != Path(__file__)]
    found = [file.relative_to(ROOT) for file in files if number in file.read_text(encoding="utf-8")]
    assert found, f"no test names {number}: {KNOWN[number]}"
