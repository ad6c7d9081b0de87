"""Delegation tokens in a cluster of three: in force on all brokers within a second, after deaths and restarts."""

import pytest
from cluster_scenario_harness import as_options, until

from headrace import Admin
from headrace.client.errors import SaslAuthenticationFailed
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.security.sasl.plain import PlainClient
from headrace.security.sasl.scram_client import ScramClient
from headrace.testing.cluster_process import ClusterProcess
from headrace.testing.raw_client import ClosedByPeer, RawClient

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{PLAIN} username="broker" password="b" user_broker="b" user_alice="a";'
    ),
    "delegation.token.secret.key": "cluster-secret",
    "connection.failed.authentication.delay.ms": "0",
}
#: A second, and what a busy machine may need more.
_PATIENCE_S = 5.0


def log_in(address, mechanism):
    """Logs in at one broker. Returns whether the broker accepted the client."""
    with RawClient(address) as client:
        client.ask(Api.SASL_HANDSHAKE, 1, mechanism=mechanism.name)
        token = mechanism.first()
        try:
            while token is not None:
                answer = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=token)
                if answer.error_code != ErrorCode.none:
                    return False
                token = mechanism.step(answer.auth_bytes)
        except ClosedByPeer:
            return False
    return True


def accepts(address, token):
    return log_in(address, ScramClient("SCRAM-SHA-256", token.token_id, token.password, is_token=True))


def wait_until_all(addresses, token, *, is_accepted=True):
    """Waits until all brokers accept the token, or refuse it."""
    until(
        lambda: all(accepts(address, token) is is_accepted for address in addresses),
        "all brokers know the token",
        timeout_s=_PATIENCE_S,
    )


def test_a_token_is_in_force_on_all_brokers(tmp_path):
    options = as_options(SETTINGS)
    with ClusterProcess(tmp_path, *options, protocol="SASL_PLAINTEXT", session_timeout_ms=3_000) as cluster:
        addresses = cluster.bootstrap_servers.split(",")
        assert len(addresses) == 3
        assert all(log_in(address, PlainClient("alice", "a")) for address in addresses)
        alice = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "a",
        }
        with Admin(config=alice) as admin:
            token = admin.create_delegation_token()
            wait_until_all(addresses, token)
            by_token = {**alice, **token.login_options("SCRAM-SHA-256")}
            del by_token["sasl.username"], by_token["sasl.password"]
            with Admin(config=by_token) as other:
                other.create_topic("by-token", num_partitions=3, replication_factor=3)
                cluster.kill(1)
                late = admin.create_delegation_token()
                cluster.restart(1)
                wait_until_all(addresses, late)
            admin.expire_delegation_token(token.hmac)
            wait_until_all(addresses, token, is_accepted=False)
        with pytest.raises(SaslAuthenticationFailed) as caught, Admin(config=by_token):
            pass
        assert token.password not in str(caught.value)
        logs = "".join(cluster.log(number) for number in (1, 2, 3))
        assert token.password not in logs
        assert "cluster-secret" not in logs
