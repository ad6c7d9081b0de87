"""Every command that connects takes the options for security from a file, and shows no secret."""

from importlib import import_module

import pytest

from certificates import certificate
from headrace import Admin, Broker, Producer
from headrace.tools.main import COMMANDS
from headrace.tools.shared.parser_facts import parser_of

SECRET = "hunter2"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
MADE = certificate()
#: What each command needs to ask a broker something.
ARGUMENTS = {
    "console-producer": "--topic t",
    "console-consumer": "--topic t --from-beginning --max-messages 1",
    "topics": "--list",
    "producer-perf-test": "--topic t --num-records 1 --record-size 1 --throughput -1",
    "consumer-perf-test": "--topic t --messages 1 --from-latest --timeout 500",
    "configs": "--describe --topic t",
    "consumer-groups": "--list",
    "delete-records": "--offset-json-file {json}",
    "get-offsets": "",
    "log-dirs": "--describe",
    "transactions": "list",
    "reassign-partitions": "--list",
    "leader-election": "--election-type preferred --all-topic-partitions",
    "preferred-replica-election": "",
    "client-metrics": "--list",
    "broker-api-versions": "",
}
OTHER_FLAGS = {
    "console-consumer": "--consumer.config",
    "producer-perf-test": "--producer.config",
    "consumer-perf-test": "--consumer.config",
    "console-producer": "--producer.config",
}
FLAGS = [(command, "--command-config") for command in ARGUMENTS] + list(OTHER_FLAGS.items())
#: Commands that have their own tests.
_ELSEWHERE = {"mirror-maker", "acls", "delegation-tokens", "registry", "console"}


def test_every_command_that_takes_a_file_is_tried():
    takes_a_file = {
        name
        for name in COMMANDS
        if any("--command-config" in action.option_strings for action in parser_of(name)._actions)
    }
    assert takes_a_file - _ELSEWHERE == set(ARGUMENTS)


@pytest.fixture(scope="module")
def broker():
    config = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_alice="{SECRET}";',
        **MADE.key_store(),
        **MADE.trust_store(),
    }
    with Broker(config=config) as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers, **LOGIN, **MADE.trust_store()}
        with Admin(config=client) as admin, Producer(config=client) as producer:
            admin.create_topics(["t"])
            producer.send("t", b"v").result(20)
        yield broker


LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": SECRET}


@pytest.fixture
def arguments_of(tmp_path, monkeypatch):
    json = tmp_path / "offsets.json"
    json.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 0}]}')
    empty = (tmp_path / "empty").open("w+")
    monkeypatch.setattr("sys.stdin", empty)
    yield lambda command: ARGUMENTS[command].format(json=json).split()
    empty.close()


def file_with(folder, **properties):
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(file)


def run(command, *arguments):
    return import_module(COMMANDS[command][0]).main(arguments)


@pytest.mark.parametrize(("command", "flag"), FLAGS)
def test_commands_log_in(broker, command, flag, tmp_path, arguments_of, capsys):
    file = file_with(tmp_path, **LOGIN, **MADE.write(tmp_path))
    code = run(command, "--bootstrap-server", broker.bootstrap_servers, flag, file, *arguments_of(command))
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert SECRET not in captured.out + captured.err


@pytest.mark.parametrize("command", ARGUMENTS)
def test_a_wrong_password_is_one_line(broker, command, tmp_path, arguments_of, capsys):
    file = file_with(tmp_path, **{**LOGIN, "sasl.password": "wrong horse"}, **MADE.write(tmp_path))
    arguments = arguments_of(command)
    code = run(command, "--bootstrap-server", broker.bootstrap_servers, "--command-config", file, *arguments)
    captured = capsys.readouterr()
    assert code == 1
    (line,) = captured.err.splitlines()
    assert "rejected the login by PLAIN" in line
    assert "wrong horse" not in line


@pytest.mark.parametrize(
    ("options", "mentioned"),
    [
        ({"ssl.truststore.location": "/etc/ca.jks"}, "set security.protocol too"),
        ({"security.protocol": "TELNET"}, "must be one of PLAINTEXT"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/not/there", "ssl.truststore.type": "PEM"},
            "/not/there",
        ),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "SCRAM-SHA-512"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": SECRET}, "sasl.jaas.config"),
    ],
)
@pytest.mark.parametrize(("command", "flag"), FLAGS)
def test_files_that_cannot_be_used_are_wrong_use(command, flag, options, mentioned, tmp_path, arguments_of, capsys):
    file = file_with(tmp_path, **options)
    assert run(command, "--bootstrap-server", "127.0.0.1:1", flag, file, *arguments_of(command)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert mentioned in line
    assert SECRET not in line


def test_properties_of_the_command_line(broker, tmp_path, arguments_of, capsys):
    properties = [part for item in LOGIN.items() for part in ("--command-property", "=".join(item))]
    trust = ["--command-config", file_with(tmp_path, **MADE.write(tmp_path))]
    arguments = ["--bootstrap-server", broker.bootstrap_servers, *trust, *properties]
    assert run("console-consumer", *arguments, *arguments_of("console-consumer")) == 0
    assert capsys.readouterr().out == "v\n"


# -- a mirror has two sides


def mirror(source, target, *arguments):
    return run("mirror-maker", "--source", source, "--target", target, "--include", "t", "--once", *arguments)


@pytest.mark.parametrize("is_one_file", [True, False])
def test_a_mirror_with_another_protocol_on_each_side(broker, is_one_file, tmp_path, capsys):
    secured = {**LOGIN, **MADE.write(tmp_path)}
    with Broker() as other:
        if is_one_file:
            properties = {f"source.{name}": value for name, value in secured.items()}
            file = file_with(tmp_path, **properties, **{"target.security.protocol": "PLAINTEXT"})
            flags = ["--command-config", file]
        else:
            flags = ["--consumer.config", file_with(tmp_path, **secured)]
        assert mirror(broker.bootstrap_servers, other.bootstrap_servers, *flags) == 0, capsys.readouterr().err
        with Admin(bootstrap_servers=other.bootstrap_servers) as admin:
            assert "t" in admin.list_topics()
    captured = capsys.readouterr()
    assert SECRET not in captured.out + captured.err


@pytest.mark.parametrize("flag", ["--consumer.config", "--producer.config", "--command-config"])
def test_a_mirror_refuses_what_it_cannot_use_on_either_side(flag, tmp_path, capsys):
    file = file_with(tmp_path, **{"ssl.truststore.location": "/etc/ca.jks"})
    assert mirror("127.0.0.1:1", "127.0.0.1:1", flag, file) == 2
    assert "ssl.truststore.location" in capsys.readouterr().err
