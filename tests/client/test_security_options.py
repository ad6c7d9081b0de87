"""Options that ask our clients for security: an error that names the option, never a silent plain connection."""

import pytest

import headrace
from headrace.client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from headrace.pipeline.spark.options import BadOption
from headrace.pipeline.spark.sink.options import SinkOptions
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.tools.main import COMMANDS
from headrace.tools.shared.parser_facts import parser_of

AT = "127.0.0.1:1"
KINDS = (ProducerConfig, ConsumerConfig, AdminConfig)
CLIENTS = ("Producer", "Consumer", "Admin", "AsyncProducer", "AsyncConsumer", "AsyncAdmin")
SECRET = "hunter2"
#: By Java's names, as kafka-python spells them, and as librdkafka does.
REFUSED = [
    ("security.protocol", "SSL"),
    ("security.protocol", "sasl_plaintext"),
    ("security.providers", "com.example.Provider"),
    ("ssl.truststore.location", "/etc/ca.jks"),
    ("ssl.keystore.password", SECRET),
    ("ssl.endpoint.identification.algorithm", "https"),
    ("ssl.protocol", "TLSv1.3"),
    ("ssl.cafile", "/etc/ca.pem"),
    ("sasl.mechanism", "PLAIN"),
    ("sasl.jaas.config", SECRET),
    ("sasl.password", SECRET),
    ("bootstrap.servers", "SSL://127.0.0.1:9093"),
    ("bootstrap.servers", "127.0.0.1:9092,sasl_ssl://127.0.0.1:9094"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
@pytest.mark.parametrize("kind", KINDS)
def test_refused(kind, name, value):
    for load in (
        lambda: kind.load({"bootstrap.servers": AT, name: value}),
        lambda: kind.load(**{"bootstrap_servers": AT, name.replace(".", "_"): value}),
    ):
        with pytest.raises(ValueError, match="no TLS and no SASL yet") as error:
            load()
        assert name in str(error.value)
        assert SECRET not in str(error.value)


def test_several_are_one_line():
    with pytest.raises(ValueError) as error:
        AdminConfig.load({"ssl.key.password": SECRET, "sasl.mechanism": "PLAIN"}, bootstrap_servers=AT)
    assert str(error.value) == (
        "ssl.key.password, sasl.mechanism: the clients have no TLS and no SASL yet, and the connection would be plain "
        "text; remove these options and connect to a PLAINTEXT listener"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "plaintext"},
        {"ssl.endpoint.identification.algorithm": ""},
        {"ssl.context": None, "sasl.mechanism": None},
        {"bootstrap.servers": "PLAINTEXT://127.0.0.1:1,INTERNAL://127.0.0.1:2"},
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_asks_for_nothing_is_accepted(kind, options):
    assert kind.load({"bootstrap.servers": AT, **options}).security_protocol == "PLAINTEXT"


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_refuses_before_it_connects(client):
    with pytest.raises(ValueError, match=r"ssl\.truststore\.location"):
        getattr(headrace, client)(config={"bootstrap.servers": AT, "ssl.truststore.location": "/etc/ca.jks"})


def test_options_of_shared_files_are_kept_for_the_refusal():
    shared = {"linger.ms": "5", "client.id": "me", "ssl.truststore.location": "/a", "security.protocol": "SSL"}
    assert list(ClientConfig.select(shared)) == ["client.id", "ssl.truststore.location", "security.protocol"]


# -- commands

#: What a command needs to get as far as connecting.
ARGUMENTS = {
    "console-producer": "--topic t",
    "console-consumer": "--topic t",
    "topics": "--list",
    "producer-perf-test": "--topic t --num-records 1 --record-size 1 --throughput -1",
    "consumer-perf-test": "--topic t --messages 1",
    "configs": "--describe --topic t",
    "consumer-groups": "--list",
    "delete-records": "--offset-json-file {json}",
    "get-offsets": "",
    "log-dirs": "--describe",
    "transactions": "list",
    "reassign-partitions": "--list",
    "leader-election": "--election-type preferred --all-topic-partitions",
    "broker-api-versions": "",
}
OTHER_FLAGS = {"console-consumer": "--consumer.config", "producer-perf-test": "--producer.config"}


def test_every_command_that_takes_a_file_is_tried():
    takes_a_file = {
        name
        for name in COMMANDS
        if any("--command-config" in action.option_strings for action in parser_of(name)._actions)
    }
    assert takes_a_file == set(ARGUMENTS)


def run(command, *arguments):
    from importlib import import_module

    return import_module(COMMANDS[command][0]).main(arguments)


@pytest.mark.parametrize("option", ["ssl.truststore.location=/etc/ca.jks", "security.protocol=SASL_SSL"])
@pytest.mark.parametrize("command", ARGUMENTS)
def test_commands_refuse_files_that_ask_for_it(command, option, tmp_path, capsys):
    file, json = tmp_path / "client.properties", tmp_path / "offsets.json"
    file.write_text(f"client.id=me\n{option}\n")
    json.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 1}]}')
    arguments = ARGUMENTS[command].format(json=json).split()
    for flag in ("--command-config", *filter(None, [OTHER_FLAGS.get(command)])):
        assert run(command, "--bootstrap-server", AT, flag, str(file), *arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert len(captured.err.splitlines()) == 1
        assert option.partition("=")[0] in captured.err
        assert "no TLS and no SASL yet" in captured.err


def test_properties_of_the_command_line_are_refused_as_well(capsys):
    code = run(
        "console-consumer", "--bootstrap-server", AT, "--topic", "t", "--command-property", "sasl.mechanism=PLAIN"
    )
    assert code == 2
    assert "sasl.mechanism" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--consumer.config", "--producer.config"])
def test_a_mirror_refuses_it_on_either_side(flag, tmp_path, capsys):
    file = tmp_path / "client.properties"
    file.write_text("ssl.truststore.location=/etc/ca.jks\n")
    assert run("mirror-maker", "--source", AT, "--target", AT, "--include", "t", flag, str(file)) == 2
    assert "ssl.truststore.location" in capsys.readouterr().err


# -- Spark

SERVERS = {"kafka.bootstrap.servers": AT}


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_the_source_in_spark(name, value):
    for is_stream in (True, False):
        with pytest.raises(BadOption, match="no TLS and no SASL yet") as error:
            SourceOptions.parse({**SERVERS, "subscribe": "t", f"kafka.{name}": value}, is_stream=is_stream)
        assert name in str(error.value)


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_the_sink_in_spark(name, value):
    types = pytest.importorskip("pyspark.sql.types")
    schema = types.StructType([types.StructField("value", types.StringType())])
    with pytest.raises(BadOption, match="no TLS and no SASL yet") as error:
        SinkOptions.parse({**SERVERS, "topic": "t", f"kafka.{name}": value}, schema)
    assert name in str(error.value)
