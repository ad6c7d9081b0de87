"""The znode tree of ``headrace start --brokers`` is for its own brokers, and for the owner of its folder."""

import re
import stat
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionExpiredError

from headrace.testing.broker_process import BrokerProcess, StartFailed
from headrace.testing.cluster_process import LocalClusterProcess
from headrace.tools.start.local_cluster import without_secret
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


def test_the_command_line_in_the_log_shows_no_secrets():
    arguments = ["--data", "x", "-o", "ssl.key.password=hunter2", "-o", "num.partitions=3"]
    arguments += ["-o", 'listener.name.a.plain.sasl.jaas.config=Plain password="hunter3";', "-o", "typo=hunter4"]
    line = " ".join(map(without_secret, arguments))
    assert "hunter" not in line
    assert "-o num.partitions=3" in line
