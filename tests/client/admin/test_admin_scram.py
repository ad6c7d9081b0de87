"""The admin client sets, shows and deletes SCRAM credentials."""

from __future__ import annotations

import pytest

from headrace import Admin, Broker
from headrace.client.admin.scram import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from headrace.client.errors import BrokerError, ErrorCode
from headrace.security.sasl.scram_client import ScramClient
from headrace.security.sasl.scram_server import Decoys, ScramServer


def test_credentials_are_set_shown_and_deleted() -> None:
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        set_them = [
            UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "secret", iterations=8192),
            UserScramCredentialUpsertion("bob", "SCRAM-SHA-256", "secret", iterations=1),
        ]
        results = admin.alter_user_scram_credentials(set_them)
        assert results["alice"] is None
        twice = UserScramCredentialUpsertion("alice", "SCRAM-SHA-512", "secret", salt=b"own salt")
        admin.alter_user_scram_credentials([twice]).all()
        assert isinstance(results["bob"], BrokerError)
        assert results["bob"].code is ErrorCode.unacceptable_credential
        assert admin.describe_user_scram_credentials().all() == {
            "alice": [ScramCredentialInfo("SCRAM-SHA-256", 8192), ScramCredentialInfo("SCRAM-SHA-512", 4096)]
        }
        users = broker.core.scram_users
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            server = ScramServer(
                mechanism, lambda of, name, *, is_token: users.account_of(of, name), Decoys(b"", users.shapes_of)
            )
            client = ScramClient(mechanism, "alice", "secret")
            token: bytes | None = client.first()
            while token is not None:
                token = client.step(server.step(token))
            assert client.is_complete
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("alice", "SCRAM-SHA-256")]).all()
        assert admin.describe_user_scram_credentials(["alice"]).value("alice") == [
            ScramCredentialInfo("SCRAM-SHA-512", 4096)
        ]
        with pytest.raises(BrokerError, match="does not exist: nobody"):
            admin.describe_user_scram_credentials(["nobody"]).all()
        with pytest.raises(ValueError, match="not a SCRAM mechanism"):
            admin.alter_user_scram_credentials([UserScramCredentialDeletion("alice", "PLAIN")])


def test_a_password_is_not_shown() -> None:
    assert "hidden" not in repr(UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "hidden", salt=b"hidden"))
