"""Describe- and AlterUserScramCredentials: validation per user, what is in the tree, and what survives a restart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.coordination.client.local_client import LocalCoordination
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.security.sasl.scram import ScramCredential
from headrace.testing import RawClient

SHA_256, SHA_512 = 1, 2
SALT = b"some salt"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as client:
        yield client


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096, **more: Any) -> dict[str, Any]:
    salted = hashlib.pbkdf2_hmac("sha256" if mechanism == SHA_256 else "sha512", b"secret", SALT, iterations or 1)
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": SALT,
        "salted_password": salted,
    } | more


def alter(client: RawClient, *upsertions: dict[str, Any], delete: tuple[tuple[str, int], ...] = ()) -> dict[str, Any]:
    answer = client.ask(
        Api.ALTER_USER_SCRAM_CREDENTIALS, 0,
        upsertions=upsertions, deletions=[{"name": name, "mechanism": mechanism} for name, mechanism in delete],
    )  # fmt: skip
    return {result.user: (result.error_code, result.error_message) for result in answer.results}


def describe(client: RawClient, *names: str) -> dict[str, Any]:
    users = [{"name": name} for name in names] or None
    answer = client.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)
    assert answer.error_code == ErrorCode.none
    return {
        result.user: [(info.mechanism, info.iterations) for info in result.credential_infos] or result.error_code
        for result in answer.results
    }


OK = (ErrorCode.none, None)


def test_credentials_are_set_described_and_deleted(client: RawClient) -> None:
    assert alter(client, upsertion("alice"), upsertion("bob")) == {"alice": OK, "bob": OK}
    assert alter(client, upsertion("alice", SHA_512, 8192)) == {"alice": OK}
    assert describe(client) == {"alice": [(1, 4096), (2, 8192)], "bob": [(1, 4096)]}
    assert alter(client, delete=(("alice", SHA_256), ("bob", SHA_256))) == {"alice": OK, "bob": OK}
    assert describe(client) == {"alice": [(2, 8192)]}
    assert describe(client, "alice", "bob") == {"alice": [(2, 8192)], "bob": ErrorCode.resource_not_found}


def test_a_user_that_is_described_twice(client: RawClient) -> None:
    alter(client, upsertion("alice"))
    assert describe(client, "alice", "alice") == {"alice": ErrorCode.duplicate_resource}


@pytest.mark.parametrize(
    ("wanted", "code", "text"),
    [
        (upsertion(""), ErrorCode.unacceptable_credential, "Username must not be empty"),
        (upsertion("u", iterations=4095), ErrorCode.unacceptable_credential, "Too few iterations"),
        (upsertion("u", iterations=16385), ErrorCode.unacceptable_credential, "Too many iterations"),
        (upsertion("u", salt=b""), ErrorCode.unacceptable_credential, "must not be empty"),
        (upsertion("u", 3), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (upsertion("u", 0), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_refused_for_one_user_is_done_for_the_other(
    client: RawClient, wanted: dict[str, Any], code: ErrorCode, text: str
) -> None:
    results = alter(client, wanted, upsertion("other"))
    assert results[wanted["name"]][0] == code
    assert text in results[wanted["name"]][1]
    assert results["other"] == OK
    assert describe(client) == {"other": [(1, 4096)]}


def test_a_user_cannot_be_altered_twice_in_a_request(client: RawClient) -> None:
    """Not even with two mechanisms, as in Kafka 4.3."""
    alter(client, upsertion("alice"))
    for code, text in (
        alter(client, upsertion("alice", iterations=8192), delete=(("alice", SHA_256),))["alice"],
        alter(client, upsertion("alice", SHA_512), upsertion("alice", SHA_256))["alice"],
    ):
        assert code == ErrorCode.duplicate_resource
        assert "cannot be altered twice" in text
    assert describe(client) == {"alice": [(1, 4096)]}


def test_what_is_not_there_cannot_be_deleted(client: RawClient) -> None:
    alter(client, upsertion("alice"))
    code, text = alter(client, delete=(("alice", SHA_512),))["alice"]
    assert code == ErrorCode.resource_not_found
    assert "does not exist" in text
    assert describe(client) == {"alice": [(1, 4096)]}


async def test_the_tree_has_kafkas_json_and_quotas_stay() -> None:
    async with Broker() as broker:
        tree = broker.core.role.coordination
        assert isinstance(tree, LocalCoordination)
        path = "/config/users/a%2Cb%2Ac%7E%20d"
        await tree.create(path, b'{"version":1,"config":{"producer_byte_rate":"1024"}}')
        store = broker.core.services.config_store
        text = ScramCredential(b"s", b"t", b"u", 4096).to_text()
        await store.change_user_configs("a,b*c~ d", lambda configs: {**configs, "SCRAM-SHA-256": text})
        data, _ = await tree.get(path)
        assert json.loads(data) == {
            "version": 1,
            "config": {
                "producer_byte_rate": "1024",
                "SCRAM-SHA-256": "salt=cw==,stored_key=dA==,server_key=dQ==,iterations=4096",
            },
        }
        assert list(broker.core.scram_users) == ["a,b*c~ d"]


def test_users_survive_a_restart(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        alter(client, upsertion("alice"))
    with Broker(data=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert describe(client) == {"alice": [(1, 4096)]}
