"""A broker with a SASL listener, and a client that logs in with our own mechanisms."""

from __future__ import annotations

from typing import Any

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.runtime.clock import Clock
from headrace.security.sasl.mechanism import ClientMechanism
from headrace.security.sasl.scram import new_credential
from headrace.testing import RawClient

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    + " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    + ";"
)
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_JAAS,
    "connection.failed.authentication.delay.ms": 0,
}


def sasl_broker(config: dict[str, object] | None = None, clock: Clock | None = None) -> Broker:
    return Broker(config={**CONFIG, **(config or {})}, clock=clock)


def add_scram_users(broker: Broker) -> None:
    """Gives the users SCRAM credentials, in the cache alone."""
    for name, password in USERS.items():
        configs = {
            mechanism: new_credential(mechanism, password).to_text() for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        }
        broker.core.scram_users.put(name, configs)


def log_in(client: RawClient, mechanism: ClientMechanism, *, version: int = 2) -> Any:
    """Logs in, and returns the last answer."""
    answer = client.ask(Api.SASL_HANDSHAKE, 1, mechanism=mechanism.name)
    assert answer.error_code == ErrorCode.none
    token: bytes | None = mechanism.first()
    while token is not None:
        answer = client.ask(Api.SASL_AUTHENTICATE, version, auth_bytes=token)
        if answer.error_code != ErrorCode.none:
            return answer
        token = mechanism.step(answer.auth_bytes)
    assert mechanism.is_complete
    return answer
