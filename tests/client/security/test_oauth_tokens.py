"""Tokens for OAUTHBEARER: from a function, from a token endpoint, from a file, and without a signature."""

import base64
import json
from time import time

import pytest

from headrace import Admin, AsyncAdmin, Broker
from headrace.client.config import AdminConfig
from headrace.client.errors import BrokerUnreachable, SaslAuthenticationFailed
from headrace.client.security.credentials import credentials_of
from headrace.client.security.oauth_tokens import Token, TokenCredentials
from token_harness import NOW_S, answer, endpoint, key_set, signed

SECRET = "hunter2"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
LOGIN = {"bootstrap.servers": "h:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
CLIENT = f'{MODULE} clientId="me" clientSecret="{SECRET}" scope="logs" extension_logicalCluster="lkc";'
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
URL = "sasl.oauthbearer.token.endpoint.url"


def credentials(**options):
    return credentials_of(AdminConfig.load({**LOGIN, **options}))


async def token_of(**options):
    return (await credentials(**options).token()).text


def at(url, **more):
    quick = {"sasl.login.connect.timeout.ms": 2000, "sasl.login.retry.backoff.ms": 1}
    return {URL: url, ALLOWED: f"https://other.example/,{url}", "sasl.jaas.config": CLIENT, **quick, **more}


# -- the token endpoint


async def test_client_credentials():
    with endpoint(answer(expires_in=600)) as (url, asked):
        made = credentials(**at(url))
        assert (await made.token()).text == "a.b.c"
        assert b"auth=Bearer a.b.c\x01logicalCluster=lkc\x01\x01" in (await made.begin()).first()
    ((path, authorization, body),) = asked  # asked once, and kept
    assert path == "/token"
    assert authorization == "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert body == {"grant_type": ["client_credentials"], "scope": ["logs"]}


async def test_client_credentials_by_options():
    name = "sasl.oauthbearer.client.credentials"
    given = {f"{name}.client.id": "a b", f"{name}.client.secret": "c:d", "sasl.oauthbearer.header.urlencode": "true"}
    with endpoint(answer()) as (url, asked):
        assert await token_of(**{**at(url), "sasl.jaas.config": "", **given}) == "a.b.c"
    assert asked[0][1] == "Basic " + base64.b64encode(b"a+b:c%3Ad").decode()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ((401, b'{"error":"invalid_client","error_description":"hunter2"}'), r"answered 401 \(invalid_client\)"),
        ((400, b"<html>hunter2"), "answered 400; check clientId"),
        ((302, b"", ("Location", "http://127.0.0.1:1/elsewhere")), "answered 302"),
        ((200, b"no json"), "has no access_token"),
        ((200, b'{"access_token": 5}'), "has no access_token"),
        ((200, b"[" * 60_000), "has no access_token"),
        ((200, b" " * 70_000), "more than 65536 bytes"),
        (answer("a\x01b"), "is not a bearer token"),
        (answer("a" * 40_000), "is not a bearer token"),
    ],
)
async def test_answers_that_are_final(bad, message):
    with endpoint(bad) as (url, asked):
        with pytest.raises(SaslAuthenticationFailed, match=message) as error:
            await token_of(**at(url))
        assert len(asked) == 1
    assert SECRET not in str(error.value)


async def test_an_endpoint_that_fails_is_asked_again():
    with endpoint((503, b""), (500, b""), answer()) as (url, asked):
        assert await token_of(**at(url)) == "a.b.c"
        assert len(asked) == 3
    with pytest.raises(BrokerUnreachable, match="gave no token"):
        await token_of(**at(url))
    with endpoint((503, b"")) as (url, asked):
        with pytest.raises(BrokerUnreachable, match="answered 503"):
            await token_of(**at(url))
        assert len(asked) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({URL: "http://h/token"}, "is not allowed; add it to the option"),
        ({URL: "file:///etc/passwd"}, "is not allowed"),
        ({URL: "http://h/token", ALLOWED: "http://h/token/,http://h"}, "is not allowed"),
        ({URL: "ftp://h/token", ALLOWED: "ftp://h/token"}, "must begin with https:, http: or file:"),
        ({URL: "http://h/t", ALLOWED: "http://h/t", "sasl.jaas.config": f"{MODULE};"}, "needs clientId"),
        ({URL: "http://h/t", ALLOWED: "http://h/t", "sasl.jaas.config": f"{MODULE} clientId=a;"}, "needs clientId"),
    ],
)
def test_endpoints_that_are_refused(options, message):
    """CVE-2025-27817: an option must not make the client read files or ask servers that nobody has allowed."""
    with pytest.raises(ValueError, match=message):
        credentials(**{"sasl.jaas.config": CLIENT, **options})


async def test_a_file_with_a_token(tmp_path):
    file = tmp_path / "a token"
    file.write_text("a.b.c\n")
    made = credentials(**{URL: file.as_uri(), ALLOWED: file.as_uri()})
    assert (await made.token()).text == "a.b.c"
    file.write_text("d.e.f\n")
    assert (await made.token()).text == "d.e.f"
    file.write_text("a" * 70_000)
    with pytest.raises(SaslAuthenticationFailed, match=r"cannot read the token .* it has more than 65536 bytes"):
        await made.token()
    file.unlink()
    with pytest.raises(SaslAuthenticationFailed, match="cannot read the token"):
        await made.token()


# -- the program's function


class Provider:
    def token(self):
        return "from.an.object"


async def coroutine():
    return "from.a.coroutine", time() + 60


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        (lambda: "plain", "plain"),
        (lambda: ("a", time() + 60), "a"),
        (Provider(), "from.an.object"),
        (coroutine, "from.a.coroutine"),
    ],
)
async def test_functions(provider, expected):
    assert await token_of(**{"sasl.oauth.token.provider": provider}) == expected


def fails():
    raise RuntimeError(SECRET)


@pytest.mark.parametrize(
    "provider", [fails, lambda: None, lambda: ("a", "soon"), lambda: "white space", lambda: b"bytes"]
)
async def test_functions_that_give_no_token(provider):
    with pytest.raises(SaslAuthenticationFailed) as error:
        await token_of(**{"sasl.oauth.token.provider": provider})
    assert SECRET not in str(error.value)


async def test_a_token_is_kept_for_most_of_its_lifetime():
    now_s, given = [1000.0], []

    async def fetch():
        given.append(Token(f"t{len(given)}", now_s[0] + 100))
        return given[-1]

    made = TokenCredentials(fetch, now_s=lambda: now_s[0])
    for at_s, expected in [(1000, "t0"), (1079, "t0"), (1080, "t1"), (1159, "t1"), (1300, "t2")]:
        now_s[0] = at_s
        assert (await made.token()).text == expected


@pytest.mark.parametrize("said_s", [None, 1000.0])
async def test_the_claim_of_a_token_says_when_it_ends(said_s):
    now_s, given = [NOW_S], []

    async def fetch():
        given.append(Token(signed(exp=NOW_S + 100), said_s and NOW_S + said_s))
        return given[-1]

    made = TokenCredentials(fetch, now_s=lambda: now_s[0])
    for at_s, expected in [(0, 1), (79, 1), (80, 2), (81, 2)]:
        now_s[0] = NOW_S + at_s
        await made.token()
        assert len(given) == expected


async def test_a_token_is_used_until_its_end_if_there_is_no_new_one(caplog):
    now_s, given = [1000.0], [Token("t0", 1100)]

    async def fetch():
        if not given:
            raise BrokerUnreachable("the token endpoint is gone")
        return given.pop()

    made = TokenCredentials(fetch, now_s=lambda: now_s[0])
    assert (await made.token()).text == "t0"
    now_s[0] = 1099
    assert (await made.token()).text == "t0"
    assert "the token endpoint is gone" in caplog.text
    given.append(Token("t1", 1200))
    assert (await made.token()).text == "t1"
    now_s[0] = 1200
    with pytest.raises(BrokerUnreachable):
        await made.token()


async def test_a_token_without_a_signature():
    line = f'{MODULE} unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope="|a|b";'
    header, payload, signature = (await token_of(**{"sasl.jaas.config": line})).split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert (claims["sub"], claims["scope"], signature) == ("alice", ["a", "b"], "")
    assert claims["exp"] - claims["iat"] == 3600


# -- a broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    file = tmp_path_factory.mktemp("provider") / "keys.json"
    file.write_bytes(key_set())
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": file.as_uri(),
    }
    with Broker(config=config) as broker:
        yield broker


def new_token(lasts_s=600):
    return signed(iat=int(time()) - 1, exp=int(time()) + lasts_s)


def test_a_broker_accepts_the_token_of_an_endpoint(broker):
    with endpoint(answer(new_token())) as (url, _):
        given = {**LOGIN, **at(url), "bootstrap.servers": broker.bootstrap_servers}
        given["sasl.jaas.config"] = f'{MODULE} clientId="me" clientSecret="{SECRET}";'
        with Admin(config=given) as admin:
            assert admin.list_topics() == {}


async def test_a_broker_accepts_the_token_of_a_function(broker):
    given = {**LOGIN, "bootstrap.servers": broker.bootstrap_servers}
    async with AsyncAdmin(config=given, sasl_oauth_token_provider=lambda: (new_token(), time() + 600)) as admin:
        assert await admin.list_topics() == {}


def test_a_broker_rejects_a_token(broker):
    given = {**LOGIN, "bootstrap.servers": broker.bootstrap_servers}
    with pytest.raises(SaslAuthenticationFailed, match="rejected the login by OAUTHBEARER"):
        Admin(config=given, sasl_oauth_token_provider=lambda: new_token(-10)).__enter__()
