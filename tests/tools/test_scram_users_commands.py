"""Users by ``headrace configs`` and ``headrace storage``: in Kafka's words, by a broker, in ZooKeeper, in a folder."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from hashlib import pbkdf2_hmac
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from headrace import Broker
from headrace.security.sasl.scram import credential_of
from headrace.testing import BrokerProcess
from headrace.tools import storage as storage_command
from headrace.tools.shared.commands import UsageError
from headrace.tools.shared.scram_options import PasswordAndIterations, parse_added_user, parse_password


def test_a_user_is_added_shown_and_deleted(tool) -> None:
    entity = ("--entity-type", "users", "--entity-name", "alice")
    both = "SCRAM-SHA-256=[iterations=8192,password=a,b=c],SCRAM-SHA-512=[password=secret]"
    added = tool("configs", "--alter", *entity, "--add-config", both)
    assert added == (0, "Completed updating config for user alice.\n", "")
    tool("configs", "--alter", "--user", "bob", "--add-config", "SCRAM-SHA-256=[password=x]")
    alice = (
        "SCRAM credential configs for user-principal 'alice' are "
        "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096"
    )
    bob = "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=4096"
    assert tool("configs", "--describe", *entity).lines == [alice]
    assert {alice, bob} <= set(tool("configs", "--describe", "--entity-type", "users").lines)
    assert tool("configs", "--describe", "--user", "bob", "--json").value == [
        {
            "entityType": "users",
            "entityName": "bob",
            "credentials": [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}],
        }
    ]
    deleted = tool("configs", "--alter", *entity, "--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512")
    assert deleted.code == 0
    assert tool("configs", "--describe", *entity) == (0, "", "")
    assert tool("configs", "--describe", *entity, "--json").value == []
    again = tool("configs", "--alter", *entity, "--delete-config", "SCRAM-SHA-256")
    assert again.code == 1
    assert "does not exist" in again.err


def test_no_output_shows_a_password(tool) -> None:
    done = tool("configs", "--alter", "--user", "c", "--add-config", "SCRAM-SHA-256=[password=hidden]", "--json")
    wrong = tool("configs", "--alter", "--user", "c", "--add-config", "SCRAM-SHA-256=[passwort=hidden]")
    assert "hidden" not in done.out + done.err + wrong.out + wrong.err
    assert wrong.code == 2


def test_users_in_zookeeper_before_the_first_broker(tool, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, command="zookeeper") as server:
        where = ("configs", "--zookeeper", server.address, "--user", "ad min")
        assert tool(*where, "--describe").code == 1
        added = tool(*where, "--alter", "--add-config", "SCRAM-SHA-512=[password=x]")
        assert added == (0, "Completed updating config for user ad min.\n", "")
        shown = tool(*where, "--describe")
        assert shown.out == "SCRAM credential configs for user-principal 'ad min' are SCRAM-SHA-512=iterations=4096\n"
        assert tool(*where, "--alter", "--delete-config", "SCRAM-SHA-256").code == 1
        client = KazooClient(server.address)
        client.start()
        data, _ = client.get("/config/users/ad%20min")
        assert json.loads(data)["config"]["SCRAM-SHA-512"].endswith(",iterations=4096")
        (change,) = client.get_children("/config/changes")
        assert json.loads(client.get(f"/config/changes/{change}")[0])["entity_path"] == "users/ad%20min"
        client.stop()
        client.close()


def test_users_in_a_zookeeper_that_protects_them(tool, tmp_path: Path) -> None:
    file = tmp_path / "zookeeper.properties"
    file.write_text("headrace.zookeeper.login=kafka:secret\nzookeeper.set.acl=true\n")
    with BrokerProcess(tmp_path / "tree", command="zookeeper") as server:
        where = ("configs", "--zookeeper", server.address, "--user", "admin")
        user = ("--alter", "--add-config", "SCRAM-SHA-512=[password=x]")
        assert tool(*where, *user, "--zk-tls-config-file", str(file)).code == 0
        assert tool(*where, "--describe", "--zk-tls-config-file", str(file)).code == 0
        refused = tool(*where, "--describe")
        assert refused.code == 1
        assert "access control list does not permit" in refused.err
    file.write_text("zookeeper.set.acl=true\n")
    assert tool(*where, *user, "--zk-tls-config-file", str(file)).code == 2
    assert tool("configs", "--describe", "--user", "admin", "--login-file", str(file)).code == 2


@pytest.fixture
def storage(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = storage_command.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_folder_is_formatted_with_users(storage, tmp_path: Path) -> None:
    scram = ("--add-scram", "SCRAM-SHA-256=[name=admin,password=secret]", "-S", "SCRAM-SHA-512=[name=admin,password=x]")
    cluster_id = storage("random-uuid")[1].strip()
    assert storage("format", "--data", tmp_path, "-t", cluster_id, *scram)[0] == 0
    assert storage("format", "--data", tmp_path, "-t", cluster_id, *scram)[0] == 0
    code, _, error = storage("format", "--data", tmp_path, "-t", "another-cluster-id-000")
    assert code == 1
    assert "belongs to cluster" in error
    with Broker(data=tmp_path) as broker:
        assert sorted(broker.core.scram_users.of("admin")) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert broker.core.metadata.cluster_id == cluster_id
        code, _, error = storage("format", "--data", tmp_path, *scram)
        assert code == 1
        assert "in use by another process" in error


def test_the_folder_of_a_properties_file(storage, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}/a,{tmp_path}/b\n")
    assert storage("format", "-c", file, "-S", "SCRAM-SHA-256=[name=a,password=b]")[0] == 0
    assert (tmp_path / "a" / ".coordination").is_dir()
    file.write_text("zookeeper.ssl.client.enable=maybe\nzookeeper.connect=127.0.0.1:1\n")
    code, _, error = storage("format", "-c", file)
    assert code == 2
    assert "zookeeper.ssl.client.enable: must be true or false" in error


def test_the_folder_of_a_cluster(storage, tmp_path: Path) -> None:
    """``start --brokers N`` serves the tree in DATA/zookeeper."""
    users = tmp_path / "users"
    users.write_text("SCRAM-SHA-256=[name=admin,password=secret]\n\nSCRAM-SHA-512=[name=bob,password=secret]\n")
    arguments = ("format", "--brokers", 3, "--data", tmp_path / "data", "--add-scram-file", users)
    code, out, error = storage(*arguments, "-t", "AAAAAAAAAAAAAAAAAAAAAA")
    assert (code, out, error) == (0, f"Formatted {tmp_path / 'data'} with admin, bob.\n", "")
    assert storage(*arguments)[0] == 0
    code, _, error = storage(*arguments, "-t", "BAAAAAAAAAAAAAAAAAAAAA")
    assert code == 1
    assert "The cluster has the id AAAAAAAAAAAAAAAAAAAAAA" in error
    with BrokerProcess(tmp_path / "data" / "zookeeper", command="zookeeper") as server:
        client = KazooClient(server.address)
        client.start()
        assert sorted(client.get_children("/config/users")) == ["admin", "bob"]
        client.stop()
        client.close()
        code, _, error = storage(*arguments)
        assert code == 1
        assert "its cluster is running" in error
    (tmp_path / "data" / "meta.properties").write_text("")
    code, _, error = storage(*arguments)
    assert code == 1
    assert "is the folder of a single broker" in error
    assert storage("format", "--add-scram-file", tmp_path / "none")[0] == 2


def test_the_zookeeper_of_a_properties_file(storage, tool, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    admin = ("-S", "SCRAM-SHA-512=[name=admin,password=secret]")
    with BrokerProcess(tmp_path / "tree", command="zookeeper") as server:
        file.write_text(
            f"zookeeper.connect={server.address}/logs\nheadrace.zookeeper.login=kafka:secret\nzookeeper.set.acl=true\n"
        )
        code, out, error = storage("format", "-c", file, *admin, "-t", "AAAAAAAAAAAAAAAAAAAAAA")
        assert (code, out, error) == (0, f"Formatted {server.address}/logs with admin.\n", "")
        shown = ("configs", "--zookeeper", f"{server.address}/logs", "--describe", "--user", "admin")
        assert tool(*shown, "--zk-tls-config-file", str(file)).code == 0
        refused = tool(*shown)
        assert (refused.code, "access control list" in refused.err) == (1, True)
        assert storage("format", "--zookeeper", f"{server.address}/other", *admin)[0] == 0
        assert tool("configs", "--zookeeper", f"{server.address}/other", "--describe", "--user", "admin").code == 0


# -- without a broker


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=a,b=c]", PasswordAndIterations("a,b=c]", 4096)),
        ("iterations=8192,password=x", PasswordAndIterations("x", 8192)),
        ("iterations=-1,password=x", PasswordAndIterations("x", 4096)),
    ],
)
def test_passwords(text: str, expected: PasswordAndIterations) -> None:
    assert parse_password("SCRAM-SHA-256", text) == expected


@pytest.mark.parametrize(
    "text", ["", "password=", "secret", "iterations=4095,password=x", "iterations=99999,password=x"]
)
def test_passwords_that_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_password("SCRAM-SHA-256", text)


def test_a_user_with_a_salted_password() -> None:
    salted = pbkdf2_hmac("sha256", b"secret", b"salt", 8192)
    text = f'SCRAM-SHA-256=[name="a b",iterations=8192,salt="{b64encode(b"salt").decode()}",saltedpassword={{}}]'
    name, mechanism, credential = parse_added_user(text.format(f'"{b64encode(salted).decode()}"'))
    assert (name, mechanism) == ("a b", "SCRAM-SHA-256")
    assert credential == credential_of("SCRAM-SHA-256", salted, b"salt", 8192)
    with_salt = f"SCRAM-SHA-256=[name=a,iterations=8192,salt={b64encode(b'salt').decode()},password=secret]"
    assert parse_added_user(with_salt)[2] == credential


@pytest.mark.parametrize(
    "text",
    [
        "PLAIN=[name=a,password=hidden]",
        "SCRAM-SHA-256=name=a,password=hidden",
        "SCRAM-SHA-256=[password=hidden]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=hidden,saltedpassword=hidden]",
        "SCRAM-SHA-256=[name=a,saltedpassword=aGlkZGVu]",
        "SCRAM-SHA-256=[name=a,password=hidden,other=1]",
        "SCRAM-SHA-256=[name=a,iterations=x,password=hidden]",
        "SCRAM-SHA-256=[name=a,iterations=1,password=hidden]",
        "SCRAM-SHA-256=[name=a,salt=?,password=hidden]",
    ],
)
def test_users_that_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_added_user(text)
    assert "hidden" not in str(error.value)
