"""``headrace start`` as a process: what it prints, how it refuses, how it ends."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.protocol.api import Api
from headrace.testing.broker_process import BrokerProcess, StartFailed
from headrace.testing.raw_client import RawClient
from headrace.tools.start import command as start_command

HEADRACE = (sys.executable, "-c", "from headrace.tools.main import main; main()")

#: The file that comes with Kafka, less its comments, with a ZooKeeper and with what people add to it.
SERVER_PROPERTIES = """\
# Licensed to nobody in particular
broker.id=0
listeners=PLAINTEXT://127.0.0.1:0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={folder}/a,{folder}/b
num.partitions=3
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
group.initial.rebalance.delay.ms=0
"""


def start(*arguments, cwd=None):
    """A start that should fail: (exit code, its standard error without the log lines, its standard output)."""
    done = subprocess.run([*HEADRACE, "start", *arguments], capture_output=True, text=True, cwd=cwd, timeout=30)
    return done.returncode, done.stderr, done.stdout


def refusal(*arguments, cwd=None):
    """The one line that says why it does not start."""
    return why(*start(*arguments, cwd=cwd))


@pytest.fixture
def refused(capsys):
    """The same without a process of its own, where there are many."""

    def refused(*arguments):
        try:
            code = start_command.main(arguments)
        except SystemExit as end:
            code = end.code
        captured = capsys.readouterr()
        return why(code, captured.err, captured.out)

    return refused


def why(code, stderr, stdout):
    assert code == 2, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    (line,) = [line for line in stderr.splitlines() if line.startswith("headrace")]
    assert line == stderr.splitlines()[-1]
    return line


def api_versions(address):
    with RawClient(address) as client:
        return client.ask(Api.API_VERSIONS, 0)


def metadata(client, *names):
    return client.ask(
        Api.METADATA, 12, topics=[{"name": name} for name in names],
        allow_auto_topic_creation=True, include_topic_authorized_operations=False,
    )  # fmt: skip


def test_port_0_becomes_a_real_one_and_the_ready_line_says_which(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        host, _, port = broker.address.rpartition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
        assert api_versions(broker.address).error_code == 0


def test_sigterm_is_a_clean_stop(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        with RawClient(broker.address) as client:
            metadata(client, "t")
            assert not (tmp_path / ".kafka_cleanshutdown").exists()
            assert broker.terminate() == 0
            assert client.is_closed_by_peer()
        assert "Traceback" not in broker.log
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with BrokerProcess(tmp_path) as broker:
        assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_sigterm_does_not_wait_for_long_polls(tmp_path):
    with BrokerProcess(tmp_path) as broker, RawClient(broker.address) as client:
        metadata(client, "t")
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
        client.send(
            Api.FETCH, 4, replica_id=-1, max_wait=2**31 - 1, min_bytes=1, max_bytes=1, isolation_level=0,
            topics=[{"topic": "t", "partitions": [partition]}],
        )  # fmt: skip
        api_versions(broker.address)
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log


def test_a_taken_port(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = refusal("--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}")
    assert line == f"headrace: cannot listen on 127.0.0.1:{port}: Address already in use"
    assert not (tmp_path / "data").exists(), "nothing is touched before the address is known to be free"


def test_an_address_that_is_not_ours(tmp_path, refused):
    line = refused("--data", str(tmp_path), "--listen", "192.0.2.1:9092")
    assert line.startswith("headrace: cannot listen on 192.0.2.1:9092: ")


def test_a_host_that_nobody_knows(tmp_path, refused):
    line = refused("--data", str(tmp_path), "--listen", "no.such.host.invalid:9092")
    assert line.startswith("headrace: cannot listen on no.such.host.invalid:9092: ")


def test_a_locked_folder(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        line = refusal("--data", str(tmp_path), "--listen", "127.0.0.1:0")
        assert f"log dir {tmp_path} is in use by another process" in line
        assert api_versions(broker.address).error_code == 0


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ("version=0\nbroker.id=7\ncluster.id=abc\n", "belongs to broker 7, this is broker 3"),
        ("version=1\nnode.id=7\ncluster.id=abc\n", "belongs to broker 7, this is broker 3"),
    ],
)
def test_a_folder_of_another_broker(tmp_path, meta, reason):
    (tmp_path / "meta.properties").write_text(meta)
    assert reason in refusal("--data", str(tmp_path), "--listen", "127.0.0.1:0", "-o", "broker.id=3")
    assert (tmp_path / "meta.properties").read_text() == meta


def test_folders_of_two_clusters(tmp_path, refused):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(f"version=0\nbroker.id=0\ncluster.id=cluster-{name}\n")
    line = refused("--data", f"{tmp_path}/a,{tmp_path}/b", "--listen", "127.0.0.1:0")
    assert "belongs to cluster cluster-b, this is cluster cluster-a" in line


def test_a_folder_that_cannot_be_one(tmp_path, refused):
    (tmp_path / "file").write_text("")
    line = refused("--data", str(tmp_path / "file"), "--listen", "127.0.0.1:0")
    assert "no log dir works" in line


@pytest.mark.parametrize(
    ("setting", "mentioned"),
    [
        ("num.partitions=none", "num.partitions"),
        ("num.partitions=0", "num.partitions"),
        ("log.cleanup.policy=burn", "log.cleanup.policy"),
        ("listeners=nonsense", "listeners"),
        ("no-equals-sign", "-o number 1: must be key=value"),
    ],
)
def test_a_bad_setting(tmp_path, refused, setting, mentioned):
    line = refused("--data", str(tmp_path), "--listen", "127.0.0.1:0", "-o", setting)
    assert mentioned in line


def test_a_config_file_that_is_not_there(tmp_path):
    line = refusal("--config", str(tmp_path / "none.properties"), "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert "none.properties" in line


@pytest.mark.parametrize("listen", ["127.0.0.1", "127.0.0.1:port", "127.0.0.1:70000", ""])
def test_an_address_that_is_none(tmp_path, refused, listen):
    line = refused("--data", str(tmp_path), "--listen", listen)
    assert (
        line == f"headrace: Invalid value 'PLAINTEXT://{listen}' for configuration listeners: must be NAME://HOST:PORT"
    )


@pytest.mark.parametrize("arguments", [["--bogus"], ["--listen"], ["surplus"], ["--log-level", "loud"]])
def test_a_bad_option(refused, arguments):
    line = refused(*arguments)
    assert line.startswith("headrace start: error: ")


def test_a_first_log_dir_that_does_not_work_has_no_znodes(tmp_path, refused):
    (tmp_path / "a").write_text("a file, no folder")
    line = refused("--data", f"{tmp_path}/a,{tmp_path}/b", "--listen", "127.0.0.1:0")
    assert "cannot open the znode tree in the first log dir" in line


def test_an_unknown_command_and_help():
    done = subprocess.run([*HEADRACE, "bogus"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "there is no command 'bogus'" in done.stderr
    done = subprocess.run([*HEADRACE, "start", "--help"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    assert "ready HOST:PORT" in done.stdout


def test_a_typical_server_properties_works_as_it_is(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text(SERVER_PROPERTIES.format(folder=tmp_path))
    process = subprocess.Popen(
        [*HEADRACE, "start", "--config", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        word, address = process.stdout.readline().split()
        assert word == "ready"
        with RawClient(address) as client:
            (topic,) = metadata(client, "t").topics
        assert len(topic.partitions) == 3
        folders = sorted(folder.name for name in "ab" for folder in (tmp_path / name).glob("t-*"))
        assert folders == ["t-0", "t-1", "t-2"]
    finally:
        process.terminate()
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "no setting that anybody knows" not in stderr


def test_the_command_line_wins_over_the_file_and_an_option_over_both(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.dirs=/nowhere/at/all\nno.such.setting=1\n")
    with file.open("a") as more:
        more.write("listener.name.nobody.ssl.client.auth=required\n")
    with BrokerProcess(tmp_path / "data", "--config", str(file), "-o", "num.partitions=5") as broker:
        with RawClient(broker.address) as client:
            assert len(metadata(client, "t").topics[0].partitions) == 5
        assert "no.such.setting is not a setting of Kafka or Headrace" in broker.log
        assert "listener.name.nobody.ssl.client.auth has no effect: there is no such listener" in broker.log


@pytest.mark.parametrize(
    ("file", "options", "delay_ms"),
    [(None, (), 0), (None, ("-o", "group.initial.rebalance.delay.ms=7"), 7), ("num.partitions=2\n", (), 3000)],
)
def test_new_groups_wait_for_more_members_only_if_a_file_or_an_option_says_so(tmp_path, file, options, delay_ms):
    if file is not None:
        (tmp_path / "server.properties").write_text(file)
        options = ("--config", str(tmp_path / "server.properties"))
    with BrokerProcess(tmp_path / "data", *options) as broker, RawClient(broker.address) as client:
        (node,) = client.ask(Api.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False).brokers
        key = "group.initial.rebalance.delay.ms"
        resource = {"resource_type": 4, "resource_name": str(node.broker_id), "configuration_keys": [key]}
        (result,) = client.ask(Api.DESCRIBE_CONFIGS, 1, resources=[resource], include_synonyms=False).results
        assert [config.value for config in result.configs] == [str(delay_ms)]


def test_one_broken_log_dir_of_two_does_not_keep_it_from_starting(tmp_path):
    (tmp_path / "b").write_text("a file, no folder")
    with BrokerProcess(Path(f"{tmp_path}/a,{tmp_path}/b")) as broker:
        assert api_versions(broker.address).error_code == 0
        assert f"log dir {tmp_path}/b is offline" in broker.log


def test_the_process_helper_says_why_a_start_failed(tmp_path):
    with pytest.raises(StartFailed, match=r"num\.partitions"):
        BrokerProcess(tmp_path, "-o", "num.partitions=0")


def test_the_default_folder_is_in_the_working_directory(tmp_path):
    process = subprocess.Popen(
        [*HEADRACE, "start", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path,
    )  # fmt: skip
    try:
        assert process.stdout.readline().startswith("ready 127.0.0.1:")
        assert os.listdir(tmp_path) == ["headrace-data"]
    finally:
        process.kill()
        process.communicate(timeout=30)
