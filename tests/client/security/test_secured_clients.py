"""Producer, Consumer and Admin, blocking and asyncio, with every security protocol and mechanism of a broker."""

from __future__ import annotations

import pytest

from certificates import certificate
from headrace import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Broker, Consumer, Producer
from headrace.client.errors import AuthenticationFailed, BrokerUnreachable, SaslAuthenticationFailed, TlsHandshakeFailed
from headrace.security.sasl.scram import new_credential

USER, PASSWORD = "alice", 'it\'s = a, "secret"'
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
QUOTED = PASSWORD.replace('"', '\\"')
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS)
WAYS = [
    (protocol, mechanism)
    for protocol in PROTOCOLS
    for mechanism in (MECHANISMS if protocol.startswith("SASL") else (None,))
]
MADE = certificate()
CLIENTS = [Producer, Consumer, Admin]


@pytest.fixture(scope="module")
def broker():
    config = {
        "listeners": ",".join(f"{protocol}://127.0.0.1:0" for protocol in PROTOCOLS),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.client.auth": "required",
        **MADE.key_store(),
        **MADE.trust_store(),
    }
    for protocol in ("sasl_plaintext", "sasl_ssl"):
        config[f"listener.name.{protocol}.plain.sasl.jaas.config"] = f'{PLAIN} user_{USER}="{QUOTED}";'
    with Broker(config=config) as broker:
        broker.core.scram_users.put(USER, {name: new_credential(name, PASSWORD).to_text() for name in SCRAM_MECHANISMS})
        yield broker


def options(broker, protocol, mechanism, **others):
    host, port = broker.core.endpoints[protocol]
    found = {"bootstrap.servers": f"{host}:{port}", "security.protocol": protocol}
    if protocol.endswith("SSL"):
        found |= MADE.trust_store()
    if protocol == "SSL":
        found |= certificate(name="carol").key_store()
    if mechanism is not None:
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        line = f'{module} username="{USER}" password="{QUOTED}";'
        found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": line}
    return {**found, **{name.replace("_", "."): value for name, value in others.items()}}


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_blocking(broker, protocol, mechanism):
    given = options(broker, protocol, mechanism)
    topic = f"blocking-{protocol}-{mechanism}"
    with Admin(config=given) as admin, Producer(config=given) as producer:
        admin.create_topics([topic])
        assert producer.send(topic, b"x" * 100_000).result(20).offset == 0
    reading = {**given, "group.id": topic, "auto.offset.reset": "earliest"}
    with Consumer(config=reading) as consumer:
        consumer.subscribe([topic])
        (record,) = consumer.poll(20_000)
        consumer.commit()
    assert record.value == b"x" * 100_000


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
async def test_asyncio(broker, protocol, mechanism):
    given = options(broker, protocol, mechanism)
    topic = f"asyncio-{protocol}-{mechanism}"
    async with AsyncAdmin(config=given) as admin, AsyncProducer(config=given) as producer:
        await admin.create_topics([topic])
        await (await producer.send(topic, b"value"))
    reading = {**given, "group.id": topic, "auto.offset.reset": "earliest", "group.protocol": "consumer"}
    async with AsyncConsumer(config=reading) as consumer:
        consumer.subscribe([topic])
        (record,) = await consumer.poll(20_000)
    assert record.value == b"value"


# -- what fails, fails at once


def use(client, given):
    """Does something that needs a connection."""
    given = {**given, "group.id": "g"} if client is Consumer else given
    with client(config=given) as made:
        if client is Producer:
            made.send("t", b"v").result(20)
        elif client is Consumer:
            made.subscribe(["t"])
            made.poll(20_000)
        else:
            made.list_topics()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_password(broker, client, mechanism):
    given = options(broker, "SASL_PLAINTEXT", mechanism, sasl_username=USER, sasl_password="wrong horse")
    del given["sasl.jaas.config"]
    with pytest.raises(SaslAuthenticationFailed, match=f"rejected the login by {mechanism}") as error:
        use(client, given)
    assert "wrong horse" not in str(error.value)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_issuer_that_is_not_trusted(broker, client):
    with pytest.raises(TlsHandshakeFailed, match="trust store"):
        use(client, {**options(broker, "SASL_SSL", "PLAIN"), **certificate(issuer="two").trust_store()})


@pytest.mark.parametrize("client", CLIENTS)
def test_no_certificate_for_a_listener_that_asks_for_one(broker, client):
    given = options(broker, "SSL", None)
    del given["ssl.keystore.key"], given["ssl.keystore.certificate.chain"]
    with pytest.raises(TlsHandshakeFailed, match=r"ssl\.keystore"):
        use(client, given)


@pytest.mark.parametrize("listener", PROTOCOLS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_protocol_of_another_listener(broker, listener, protocol):
    if listener == protocol:
        return
    given = options(broker, protocol, "PLAIN" if protocol.startswith("SASL") else None)
    given["bootstrap.servers"] = options(broker, listener, None)["bootstrap.servers"]
    with pytest.raises((AuthenticationFailed, BrokerUnreachable), match=r"security\.protocol|ssl\.keystore"):
        use(Admin, {**given, "default.api.timeout.ms": 500, "request.timeout.ms": 500})
