"""The znode tree of ``headrace start --brokers`` is for its own brokers, and for the owner of its folder."""

import re
import socket
import stat
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionExpiredError

from headrace.coordination.server.four_letter_words import FOUR_LETTER_WORDS
from headrace.properties import parse_properties
from headrace.testing.broker_process import BrokerProcess, StartFailed
from headrace.testing.cluster_process import LocalClusterProcess
from headrace.tools.zookeeper_shell import command as zookeeper_shell

PATIENCE_S = 20
REFUSED = (AuthFailedError, ConnectionLoss, SessionExpiredError)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(folder):
    with LocalClusterProcess(folder, brokers=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tree(cluster):
    """The address of the tree."""
    found = re.search(r"the znode tree is at (\S+)", cluster.log)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def login_file(cluster, folder):
    return folder / "zookeeper" / "brokers.login"


def request(address, **options):
    client = KazooClient(address, timeout=5, connection_retry={"max_tries": 0}, **options)
    client.start(PATIENCE_S)
    try:
        return client.get("/brokers/ids/1")[0]
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("options", [{}, {"auth_data": [("digest", "super:guess")]}], ids=["anonymous", "wrong"])
def test_other_users_of_the_host_get_no_answer(tree, options):
    with pytest.raises(REFUSED):
        request(tree, **options)


@pytest.mark.parametrize("word", sorted(FOUR_LETTER_WORDS))
def test_four_letter_words_tell_nothing(tree, word):
    host, _, port = tree.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as client, client.makefile("rb") as answer:
        client.sendall(word)
        assert answer.read() == word + b" is not executed because it is not in the whitelist.\n"


def test_who_may_read_the_file_may_read_the_tree(tree, login_file, capsys):
    assert b"endpoints" in request(tree, auth_data=[("digest", login_file.read_text())])
    assert zookeeper_shell.main(["--login-file", str(login_file), tree, "get", "/controller"]) == 0
    assert '"brokerid":1' in capsys.readouterr().out


def test_only_the_owner_may_read_the_secret_and_the_tree(login_file):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in login_file.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(login_file.parent.stat().st_mode) == 0o700


def test_the_secret_is_not_in_arguments_environment_or_log(cluster, login_file):
    secret = login_file.read_text().partition(":")[2]
    assert len(secret) == 64
    for name in ("cmdline", "environ"):
        assert secret.encode() not in Path(f"/proc/{cluster.pid_of(1)}/{name}").read_bytes()
    assert secret not in cluster.log


def test_a_broker_with_a_wrong_login_does_not_start(tree, tmp_path):
    (tmp_path / "login").write_text("super:guess\n")
    with pytest.raises(StartFailed, match=r"^headrace: .*ZooKeeper rejects our login") as failed:
        BrokerProcess(
            tmp_path / "data", "--zookeeper", tree, "-o", f"headrace.zookeeper.login.file={tmp_path / 'login'}"
        )
    assert "guess" not in str(failed.value)


SECRETS = ("hunter2", "hunter3 \\ \u00e4 = # !", "hunter4", "hunter5")


def test_secrets_of_options_are_in_no_process_and_no_log(tmp_path):
    (tmp_path / "mine").write_text(f"sasl.oauthbearer.client.credentials.client.secret={SECRETS[3]}\n")
    with LocalClusterProcess(
        tmp_path / "data",
        *("-o", f"password.encoder.secret={SECRETS[0]}"),
        *("-o", f"listener.name.a.plain.sasl.jaas.config={SECRETS[1]}"),
        *("-o", f"a.typo={SECRETS[2]}"),
        *("-o", "num.partitions=3"),
        *("--secrets", str(tmp_path / "mine")),
        brokers=2,
    ) as cluster:
        file = tmp_path / "data" / "brokers.secrets"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert parse_properties(file.read_text()) == {
            "password.encoder.secret": SECRETS[0],
            "listener.name.a.plain.sasl.jaas.config": SECRETS[1],
            "a.typo": SECRETS[2],
        }
        for number in (1, 2):
            for name in ("cmdline", "environ"):
                assert b"hunter" not in Path(f"/proc/{cluster.pid_of(number)}/{name}").read_bytes()
        assert b"num.partitions=3" in Path(f"/proc/{cluster.pid_of(1)}/cmdline").read_bytes()
        assert cluster.log.count("a.typo is not a setting") == 2  # the brokers have read the file
        cluster.kill_broker(1)
        deadline = time.monotonic() + PATIENCE_S
        while "To start it again" not in cluster.log:
            assert time.monotonic() < deadline, "the parent notices the death"
            time.sleep(0.05)
        assert "hunter" not in cluster.log
        assert f"--secrets {tmp_path / 'mine'} --secrets {file}" in cluster.log
        assert cluster.terminate() == 0
        assert not file.exists()
