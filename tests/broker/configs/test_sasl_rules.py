"""The settings of listeners with SASL: what is refused before the broker starts, in one line without secrets."""

from __future__ import annotations

import pytest

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.properties import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LINE = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
BASE = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "security.inter.broker.protocol": "SASL_PLAINTEXT"}


def load(**settings: str) -> BrokerConfig:
    return BrokerConfig.load({**BASE, **{name.replace("__", "."): value for name, value in settings.items()}})


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.enabled.mechanisms": "SCRAM-SHA-256"},
        {"sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256"},
        {"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512"},
        {"sasl.enabled.mechanisms": "PLAIN", LINE: f'{PLAIN} required user_alice="x";'},
        {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256", "sasl.jaas.config": f'{PLAIN} required user_alice="x";'},
    ],
    ids=str,
)
def test_accepted(settings: dict[str, str]) -> None:
    assert not load(**settings).unknown


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "GSSAPI is not supported, which is Kafka's default: set it to some of PLAIN, SCRAM-SHA-256"),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms is empty"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "GSSAPI is not supported"),
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "DIGEST-MD5 is not supported"),
        ({"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "X"}, "listener.name.sasl_plaintext.sasl.enabled"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, f"no users: set {LINE}"),
        ({"sasl.enabled.mechanisms": "PLAIN", LINE: f"{PLAIN} required;"}, "no users"),
        ({"sasl.enabled.mechanisms": "PLAIN", LINE: f'{PLAIN} required user_a="hidden"'}, LINE),
        ({"sasl.enabled.mechanisms": "PLAIN", LINE: f'{SCRAM} required user_a="hidden";'}, "not the login module of"),
        ({"sasl.enabled.mechanisms": "PLAIN", LINE: 'com.example.Module required a="hidden";'}, "does not have"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": f'{SCRAM} required a="hidden";'}, "no users"),
    ],
    ids=str,
)
def test_refused(settings: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(**settings)
    (line,) = error.value.problems
    assert expected in line
    assert "hidden" not in line


OAUTH = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
URL, ALLOWED = "sasl.oauthbearer.jwks.endpoint.url", "org.apache.kafka.sasl.oauthbearer.allowed.urls"
OAUTH_LINE = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
KAFKA_CLASSES = {
    "sasl.oauthbearer.jwt.validator.class": "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
    "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwt.retriever.class": (
        "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever"
    ),
}
UNSECURED = f'{OAUTH_MODULE} unsecuredValidatorAllowableClockSkewMs="0";'


@pytest.mark.parametrize(
    "settings",
    [
        {URL: "https://idp.example/keys", ALLOWED: "https://other,https://idp.example/keys"},
        {URL: "file:///etc/keys.json", ALLOWED: "file:///etc/keys.json", HANDLER: VALIDATOR},
        {URL: "http://localhost:8080/keys", ALLOWED: "http://localhost:8080/keys"},
        {URL: "http://127.0.0.1/keys", ALLOWED: "http://127.0.0.1/keys"},
        {URL: "http://[::1]:8080/keys", ALLOWED: "http://[::1]:8080/keys", **KAFKA_CLASSES},
        {OAUTH_LINE: UNSECURED},
    ],
    ids=str,
)
def test_tokens_can_be_verified(settings: dict[str, str]) -> None:
    assert not load(**OAUTH, **settings).unknown


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "no way to verify tokens"),
        ({OAUTH_LINE: f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="admin";'}, "no way to verify tokens"),
        ({HANDLER: VALIDATOR}, "no way to verify tokens"),
        ({HANDLER: VALIDATOR, OAUTH_LINE: UNSECURED}, "no way to verify tokens"),
        ({HANDLER: "com.example.Validator"}, "must be one of"),
        ({OAUTH_LINE: f'{OAUTH_MODULE} unsecuredValidatorAllowableClockSkewMs="x";'}, "number of milliseconds"),
        ({OAUTH_LINE: f'{OAUTH_MODULE} unsecuredValidatorOther="x";'}, "not an option"),
        ({URL: "https://idp.example/keys"}, "which is not allowed"),
        ({URL: "https://idp.example/keys", ALLOWED: "https://idp.example/"}, "which is not allowed"),
        ({URL: "file:///etc/passwd", ALLOWED: "https://idp.example/keys"}, "which is not allowed"),
        ({URL: "http://idp.example/keys", ALLOWED: "http://idp.example/keys"}, "begins with https://"),
        ({URL: "http://localhost.example/keys", ALLOWED: "http://localhost.example/keys"}, "begins with https://"),
        ({URL: "http://127.0.0.1@x/keys", ALLOWED: "http://127.0.0.1@x/keys"}, "begins with https://"),
        ({URL: "http:///keys", ALLOWED: "http:///keys"}, "begins with https://"),
        ({URL: "ftp://x/keys", ALLOWED: "ftp://x/keys"}, "begins with https://"),
        ({URL: "file://host/keys", ALLOWED: "file://host/keys"}, "begins with https://"),
        ({URL: "https:///keys", ALLOWED: "https:///keys"}, "begins with https://"),
        ({URL: "https://a:99999/", ALLOWED: "https://a:99999/"}, "begins with https://"),
        ({"sasl.oauthbearer.jwt.validator.class": "com.example.Validator", OAUTH_LINE: UNSECURED}, "must be one of"),
        (
            {
                "sasl.oauthbearer.jwt.validator.class": (
                    "org.apache.kafka.common.security.oauthbearer.ClientJwtValidator"
                ),
                OAUTH_LINE: UNSECURED,
            },
            "must be one of",
        ),
        ({URL: "https://a/k", ALLOWED: "https://a/k", OAUTH_LINE: UNSECURED}, "remove one of them"),
    ],
    ids=str,
)
def test_tokens_could_not_be_verified(settings: dict[str, str], expected: str) -> None:
    """CVE-2025-27817: only URLs that are listed are read. Without a way to verify tokens, a broker does not start."""
    with pytest.raises(ConfigError) as error:
        load(**OAUTH, **settings)
    (line,) = error.value.problems
    assert expected in line


def test_allowed_urls_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORG_APACHE_KAFKA_SASL_OAUTHBEARER_ALLOWED_URLS", "https://x, https://idp.example/keys")
    assert load(**OAUTH, **{URL: "https://idp.example/keys"}).str(URL)


def test_a_listener_without_sasl_needs_nothing() -> None:
    assert BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:0"}).list("sasl.enabled.mechanisms") == ("GSSAPI",)


def test_brokers_of_a_cluster_need_credentials_for_each_other() -> None:
    cluster = {"zookeeper__connect": "127.0.0.1:1", "sasl__enabled__mechanisms": "SCRAM-SHA-256"}
    with pytest.raises(ConfigError, match=r"inter\.broker\.protocol is GSSAPI, but it has to be one of"):
        load(**cluster)
    with pytest.raises(ConfigError, match="there are no credentials: set username and password"):
        load(**cluster, sasl__mechanism__inter__broker__protocol="SCRAM-SHA-256")


TOKENS = "sasl.oauthbearer.token.endpoint.url"
LOGIN = "listener.name.sasl_plaintext.oauthbearer.sasl.login.callback.handler.class"
LOGIN_CLASS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
CLUSTER_OAUTH = {
    "zookeeper.connect": "127.0.0.1:1",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    **OAUTH,
    URL: "https://idp.example/keys",
}
BOTH_URLS = "https://idp.example/keys,https://idp.example/token"


@pytest.mark.parametrize(
    "settings",
    [
        {
            TOKENS: "https://idp.example/token",
            ALLOWED: BOTH_URLS,
            LOGIN: LOGIN_CLASS,
            OAUTH_LINE: f'{OAUTH_MODULE} clientId="a" clientSecret="b";',
        },
        {
            TOKENS: "https://idp.example/token",
            ALLOWED: BOTH_URLS,
            OAUTH_LINE: f"{OAUTH_MODULE};",
            "sasl.oauthbearer.client.credentials.client.id": "a",
            "sasl.oauthbearer.client.credentials.client.secret": "b",
        },
        {TOKENS: "file:///t", ALLOWED: "https://idp.example/keys,file:///t", OAUTH_LINE: f"{OAUTH_MODULE};"},
        {OAUTH_LINE: f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="broker";', ALLOWED: BOTH_URLS},
        {URL: "", OAUTH_LINE: f'{UNSECURED.rstrip(";")} unsecuredLoginStringClaim_sub="broker";'},
    ],
    ids=str,
)
def test_brokers_can_get_tokens_for_each_other(settings: dict[str, str]) -> None:
    assert not load(**{**CLUSTER_OAUTH, **settings}).unknown


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "oauthbearer.sasl.jaas.config is missing"),
        ({OAUTH_LINE: f"{OAUTH_MODULE};"}, "there is no source of tokens"),
        ({OAUTH_LINE: f'{OAUTH_MODULE} unsecuredLoginLifetimeSeconds="9";'}, "there is no source of tokens"),
        (
            {OAUTH_LINE: f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="broker";', LOGIN: LOGIN_CLASS},
            "there is no source of tokens",
        ),
        (
            {OAUTH_LINE: f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="x";', TOKENS: "https://idp.example/token"},
            "remove one of them",
        ),
        ({OAUTH_LINE: f"{OAUTH_MODULE} clientId=a clientSecret=hidden;", TOKENS: "https://other/"}, "is not allowed"),
        ({OAUTH_LINE: f"{OAUTH_MODULE} clientId=a;", TOKENS: "https://idp.example/token"}, "needs clientId and"),
        ({OAUTH_LINE: f"{OAUTH_MODULE};", LOGIN: "com.example.Login"}, "must be one of"),
    ],
    ids=str,
)
def test_brokers_could_not_get_tokens(settings: dict[str, str], expected: str) -> None:
    """Kafka's brokers use tokens without a signature if nothing else is said. Here that needs to be said."""
    with pytest.raises(ConfigError) as error:
        load(**{**CLUSTER_OAUTH, ALLOWED: BOTH_URLS, **settings})
    (line,) = error.value.problems
    assert expected in line
    assert "hidden" not in line
