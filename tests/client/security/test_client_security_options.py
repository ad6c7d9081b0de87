"""The options for security: what fits together, what is refused, and that secrets stay secret."""

import asyncio

import pytest

import headrace
from certificates import certificate
from headrace.client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from headrace.client.security.credentials import PasswordCredentials, credentials_of
from headrace.client.security.setup import security_of, tls_options
from headrace.security.sasl.mechanism import MECHANISMS

AT = "127.0.0.1:1"
KINDS = (ProducerConfig, ConsumerConfig, AdminConfig)
CLIENTS = ("Producer", "Consumer", "Admin", "AsyncProducer", "AsyncConsumer", "AsyncAdmin")
SECRET = "hunter2"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
USER = {"sasl.username": "alice", "sasl.password": SECRET}


def load(kind=AdminConfig, /, **options):
    return kind.load({name.replace("__", "."): value for name, value in options.items()}, bootstrap_servers=AT)


#: Options, and a part of the message that refuses them.
REFUSED = [
    ({"security.protocol": "TELNET"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ({"security.protocol": ""}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ({"security.protocol": " "}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ({"security.protocol": "SASL_SSL"}, r"sasl\.mechanism is missing: SASL_SSL needs one of PLAIN, SCRAM-SHA-256"),
    ({**SASL, "sasl.mechanism": "GSSAPI", **USER}, ", ".join(MECHANISMS)),
    ({**SASL, "sasl.mechanism": "EXTERNAL", **USER}, ", ".join(MECHANISMS)),
    ({**SASL}, r"PLAIN needs a user and a password: set sasl\.jaas\.config"),
    ({**SASL, "sasl.username": "alice"}, "needs a user and a password"),
    ({**SASL, "sasl.jaas.config": f"{SCRAM_MODULE} required username=a password={SECRET};"}, "not the login module of"),
    ({**SASL, "sasl.jaas.config": f"{PLAIN_MODULE} required username=a;"}, "has no password"),
    ({**SASL, "sasl.jaas.config": f"com.sun.security.auth.module.JndiLoginModule required x={SECRET};"}, "JndiLogin"),
    ({**SASL, "sasl.jaas.config": SECRET}, r"sasl\.jaas\.config"),
    ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs tokens"),
    ({"ssl.truststore.location": "/etc/ca.jks"}, r"ssl\.truststore\.location: set security\.protocol too"),
    ({"ssl.keystore.password": SECRET}, r"set security\.protocol too"),
    (USER, r"sasl\.password, sasl\.username: set security\.protocol too"),
    # The author of a configuration could read files by a provider (CVE-2024-31141).
    ({**SASL, **USER, "config.providers": "file"}, r"replaces no \$\{\.\.\.\} in values"),
    ({**SASL, **USER, "config.providers.file.class": "com.example.Provider"}, r"replaces no \$"),
    ({"security.protocol": "SSL", "security.providers": "com.example.Provider"}, "loads no classes"),
    ({"security.protocol": "SSL", "ssl.engine.factory.class": "com.example.Engine"}, "loads no classes"),
    ({**SASL, **USER, "sasl.login.class": "com.example.Login"}, "loads no classes"),
    ({**SASL, **USER, "sasl.client.callback.handler.class": "com.example.Handler"}, "loads no classes"),
    ({**SASL, **USER, "sasl.login.callback.handler.class": "com.example.Handler"}, "loads no classes"),
    ({"security.protocol": "SSL", "ssl.cafile": "/etc/ca.pem"}, r"use ssl\.truststore\.location"),
    ({"bootstrap.servers": "SSL://127.0.0.1:9093"}, r"is a SSL listener, and security\.protocol is PLAINTEXT"),
    ({"security.protocol": "SSL", "bootstrap.servers": "h:1,sasl_ssl://h:2"}, "is a sasl_ssl listener"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
@pytest.mark.parametrize("kind", KINDS)
def test_refused(kind, options, message):
    python = {name.replace(".", "_"): value for name, value in {"bootstrap.servers": AT, **options}.items()}
    for attempt in (lambda: kind.load({"bootstrap.servers": AT, **options}), lambda: kind.load(**python)):
        with pytest.raises(ValueError, match=message) as error:
            attempt()
        assert SECRET not in str(error.value)
        assert "\n" not in str(error.value)


def test_an_unknown_option_is_never_dropped():
    with pytest.raises(TypeError, match=r"has no option ssl\.truststore\.locatoin; did you mean ssl\.truststore"):
        load(ssl__truststore__locatoin="/a")
    shared = {"linger.ms": "5", "client.id": "me", "ssl.truststore.locatoin": "/a", "security.protocol": "SSL"}
    assert list(ClientConfig.select(shared)) == ["client.id", "ssl.truststore.locatoin", "security.protocol"]


@pytest.mark.parametrize(
    "options",
    [
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "plaintext", "ssl.truststore.location": "/not/there", "sasl.mechanism": "GSSAPI"},
        {"ssl.endpoint.identification.algorithm": ""},
        {"ssl.context": None, "sasl.mechanism": None, "sasl.jaas.config": ""},
        {"bootstrap.servers": "PLAINTEXT://127.0.0.1:1,INTERNAL://127.0.0.1:2"},
        {"sasl.kerberos.service.name": "kafka", "ssl.provider": "SunJSSE", "sasl.login.refresh.buffer.seconds": "3"},
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_plain_text_when_nothing_else_is_asked_for(kind, options):
    config = kind.load({"bootstrap.servers": AT, **options})
    assert config.security_protocol == "PLAINTEXT"
    assert security_of(config).protocol == "PLAINTEXT"


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_fails_before_it_connects(client):
    options = {"security.protocol": "SSL", "ssl.truststore.location": "/not/there.pem", "ssl.truststore.type": "PEM"}

    async def start():
        await getattr(headrace, client)(config={"bootstrap.servers": AT, **options}).start()

    with pytest.raises(ValueError, match=r"/not/there\.pem"):
        asyncio.run(start())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"sasl.mechanism": "plain", **USER}, ("PLAIN", False)),
        (
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.plain.username": "alice", "sasl.plain.password": SECRET},
            ("SCRAM-SHA-512", False),
        ),
        (
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" password="{SECRET}";',
            },
            ("PLAIN", False),
        ),
        (
            {
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": f"{SCRAM_MODULE} required username=alice password={SECRET} tokenauth=true;",
            },
            ("SCRAM-SHA-256", True),
        ),
    ],
)
def test_credentials(options, expected):
    config = AdminConfig.load({"bootstrap.servers": AT, "security.protocol": "SASL_PLAINTEXT", **options})
    found = credentials_of(config)
    assert found == PasswordCredentials(expected[0], "alice", SECRET, is_token=expected[1])


def test_options_of_tls_come_as_they_are():
    made = certificate()
    config = AdminConfig.load(
        {
            "security.protocol": "SSL",
            **made.key_store(),
            **made.trust_store(),
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": "TLSv1.3",
        },
        bootstrap_servers=AT,
    )
    options = tls_options(config)
    assert (options.keystore_key, options.truststore_certificates) == (made.key, made.issuer)
    assert (options.endpoint_identification_algorithm, options.enabled_protocols) == ("", ("TLSv1.3",))
    security = security_of(config)
    assert security.protocol == "SSL"
    assert security.transport_options("h")["server_hostname"] == "h"
    assert not security.tls().check_hostname


def test_secrets_are_hidden():
    secrets = [option.python_name for option in AdminConfig.options() if option.type == "password"]
    assert len(secrets) >= 10
    config = AdminConfig(**dict.fromkeys(secrets, SECRET))
    assert SECRET not in repr(config)
    assert SECRET not in repr(PasswordCredentials("PLAIN", "alice", SECRET))
    with pytest.raises(ValueError, match=r"sasl\.password: must be a string") as error:
        load(sasl__password=[SECRET])
    assert SECRET not in str(error.value)
