"""``headrace delegation-tokens``: Kafka's flags, words and columns, and JSON."""

import re
from base64 import b64decode

import pytest

from headrace import Broker
from headrace.tools.delegation_tokens import main

SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
    ),
    "delegation.token.secret.key": "cluster-secret",
}
PROPERTIES = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.username=alice
sasl.password=alice-secret
"""


@pytest.fixture(scope="module")
def broker():
    with Broker(config=SETTINGS) as broker:
        yield broker


@pytest.fixture
def tokens(tool, tmp_path):
    """Runs the command as alice."""
    file = tmp_path / "client.properties"
    file.write_text(PROPERTIES)
    return lambda *arguments: tool("delegation-tokens", "--command-config", file, *arguments)


def test_the_life_of_a_token_in_kafkas_words(tokens, tmp_path):
    done = tokens(
        "--create", "--max-life-time-period", -1, "--renewer-principal", "User:bob", "--renewer-principal", "User:c"
    )
    assert (done.code, done.err) == (0, "")
    first, second, empty, headings, also_empty, row = done.lines
    assert first == "Calling create token operation with renewers :[User:bob, User:c] , max-life-time-period :-1"
    assert re.fullmatch(r"Created delegation token with tokenId : \S{22}", second)
    assert (empty, also_empty) == ("", "")
    assert headings == (
        "TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS                  "
        "ISSUEDATE       EXPIRYDATE      MAXDATE        "
    )
    token_id, hmac, owner, requester, *renewers = row.split()[:6]
    assert (token_id, owner, requester, renewers) == (
        second.split()[-1],
        "User:alice",
        "User:alice",
        ["[User:bob,", "User:c]"],
    )
    assert len(b64decode(hmac)) == 64

    described = tokens("--describe", "--owner-principal", "User:c").lines
    assert described[:3] == [
        "Calling describe token operation for owners: [User:c]", "Total number of tokens : 1", headings,
    ]  # fmt: skip
    assert described[3:] == ["", row]
    assert tokens("--describe").lines[0] == "Calling describe token operation for current user."

    renewed = tokens("--renew", "--hmac", hmac, "--renew-time-period", 3_600_000)
    assert renewed.lines[0] == f"Calling renew token operation with hmac :{hmac} , renew-time-period :3600000"
    assert re.fullmatch(r"Completed renew operation\. New expiry date : \d{4}-\d\d-\d\dT\d\d:\d\d", renewed.lines[1])

    (tmp_path / "hmac").write_text(f"{hmac}\n")
    expired = tokens("--expire", "--hmac-file", tmp_path / "hmac", "--expiry-time-period", -1)
    assert expired.lines[0] == f"Calling expire token operation with hmac :{hmac} , expire-time-period :-1"
    assert expired.lines[1].startswith("Completed expire operation. New expiry date : ")
    again = tokens("--expire", "--hmac", hmac, "--expiry-time-period", -1)
    assert again.code == 1
    assert again.err.startswith("headrace delegation-tokens: ")
    assert hmac not in again.err


def test_json(tokens):
    token = tokens("--create", "--max-life-time-period", 60_000, "--owner-principal", "User:dora", "--json").value
    assert (token["owner"], token["requester"], token["renewers"]) == ("User:dora", "User:alice", [])
    assert token["maxTimestamp"] - token["issueTimestamp"] == 60_000
    assert tokens("--describe", "--owner-principal", "User:dora", "--json").value == [token]
    failed = tokens("--renew", "--hmac", token["hmac"], "--renew-time-period", -1, "--json")
    assert (failed.code, failed.out) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "exactly one action: --create, --renew, --expire, --describe"),
        (["--create", "--describe"], "exactly one action"),
        (["--create"], "Missing required argument for --create: --max-life-time-period"),
        (["--renew", "--hmac", "aaaa"], "Missing required argument for --renew: --renew-time-period"),
        (["--expire", "--expiry-time-period", "1"], "Missing required argument for --expire: --hmac"),
        (["--describe", "--hmac", "aaaa"], 'Option "--hmac" can\'t be used with option "--describe"'),
        (["--create", "--max-life-time-period", "-1", "--hmac-file", "x"], 'Option "--hmac" can\'t be used'),
        (["--create", "--max-life-time-period", "-1", "--renewer-principal", "bob"], "is not a principal"),
        (["--renew", "--hmac", "s3cret!", "--renew-time-period", "1"], "the HMAC is not base64"),
        (["--renew", "--hmac", "aaaa", "--hmac-file", "x", "--renew-time-period", "1"], "either --hmac or --hmac-file"),
        (["--renew", "--hmac-file", "/no", "--renew-time-period", "1"], "cannot read /no"),
    ],
)
def test_wrong_usage(tokens, arguments, message):
    done = tokens(*arguments)
    assert done.code == 2
    assert message in done.err
    assert "s3cret" not in done.err


def test_a_broker_that_does_not_know_us_gives_no_token(capsys):
    with Broker(config={"delegation.token.secret.key": "x"}) as broker:
        code = main(["--bootstrap-server", broker.bootstrap_servers, "--create", "--max-life-time-period", "-1"])
    assert code == 1
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in capsys.readouterr().err.upper().replace(" ", "_")
