"""Checks the command ``headrace registry``: how it starts and ends, its errors, and its protection."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import trustme
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from headrace import Admin, Broker
from headrace.testing.registry_process import RegistryProcess
from headrace.tools.registry import main, parser

pytestmark = pytest.mark.xdist_group("registry-command")


@pytest.fixture(scope="module")
def quick_broker():
    with Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


def test_it_says_that_it_is_ready_and_ends_by_sigterm(quick_broker: Broker, tmp_path: Path) -> None:
    registry = RegistryProcess(quick_broker.bootstrap_servers, tmp_path, "--topic", "_first").start()
    assert registry.address.startswith("127.0.0.1:")
    with urlopen(f"{registry.url}/subjects") as answer:
        assert answer.headers["Content-Type"] == "application/vnd.schemaregistry.v1+json"
        assert json.load(answer) == []
    assert registry.stop() == 0
    with Admin(bootstrap_servers=quick_broker.bootstrap_servers) as admin:
        assert admin.describe_config("topic", "_first")["cleanup.policy"].value == "compact"
        assert len(admin.describe_topic("_first").partitions) == 1


@pytest.mark.parametrize(
    ("partitions", "configs", "reason"),
    [
        (1, {"cleanup.policy": "delete"}, "cleanup.policy=delete"),
        (1, {"cleanup.policy": "compact,delete"}, "cleanup.policy=compact,delete"),
        (2, {"cleanup.policy": "compact"}, "2 partitions"),
    ],
)
def test_a_topic_that_cannot_hold_schemas_is_refused_and_not_changed(
    quick_broker: Broker, partitions: int, configs: dict[str, str], reason: str
) -> None:
    topic = f"_bad-{partitions}-{configs['cleanup.policy'].replace(',', '-')}"
    with Admin(bootstrap_servers=quick_broker.bootstrap_servers) as admin:
        admin.create_topic(topic, partitions, configs=configs)
        done = _run("--bootstrap-server", quick_broker.bootstrap_servers, "--listen", "127.0.0.1:0", "--topic", topic)
        assert (done.returncode, done.stdout) == (2, "")
        assert reason in done.stderr
        assert admin.describe_config("topic", topic)["cleanup.policy"].value == configs["cleanup.policy"]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "from headrace.tools.main import main; main()"
    command = [sys.executable, "-c", program, "registry", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--listen", "0.0.0.0:0"], "no TLS and no password"),
        (["--listen", "nonsense"], "is not HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--basic-auth-file", "/nowhere"], "/nowhere"),
        (["--listen", "127.0.0.1:0", "--tls-key", "/nowhere"], "a TLS key needs a certificate"),
    ],
)
def test_a_bad_setting_ends_it_with_exit_code_2(
    quick_broker: Broker, capfd: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    assert main(["--bootstrap-server", quick_broker.bootstrap_servers, *arguments]) == 2
    assert reason in capfd.readouterr().err


def test_without_a_broker_it_fails_in_time(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--bootstrap-server", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--timeout", "500"]) == 1
    assert "127.0.0.1:1" in capfd.readouterr().err


def test_the_defaults_are_those_of_the_contract() -> None:
    options = parser().parse_args([])
    assert (options.listen, options.topic, options.group) == (("127.0.0.1", 8081), "_schemas", "schema-registry")


def test_tls_and_a_password(quick_broker: Broker, tmp_path: Path) -> None:
    authority = trustme.CA()
    trusted, keys, login = tmp_path / "ca.pem", tmp_path / "registry.pem", tmp_path / "login"
    authority.cert_pem.write_to_path(trusted)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(keys)
    login.write_text("me:secret\n")
    protection = ("--tls-certificate", str(keys), "--basic-auth-file", str(login), "--topic", "_tls", "--group", "tls",
                  "--registry-ca", str(trusted))  # fmt: skip
    with (
        RegistryProcess(quick_broker.bootstrap_servers, tmp_path, *protection, name="leader") as first,
        RegistryProcess(quick_broker.bootstrap_servers, tmp_path, *protection, name="follower") as second,
    ):
        trust = ssl.create_default_context(cafile=str(trusted))
        with pytest.raises(HTTPError) as raised:
            urlopen(f"https://{first.address}/subjects", context=trust)
        with raised.value as refused:
            assert (refused.code, json.load(refused)["error_code"]) == (401, 40101)
        request = Request(f"https://{first.address}/subjects")
        request.add_header("Authorization", "Basic " + b64encode(b"me:secret").decode())
        with urlopen(request, context=trust) as answer:
            assert json.load(answer) == []
        for number, registry in enumerate((first, second)):
            options = {"url": f"https://{registry.address}", "basic.auth.user.info": "me:secret"}
            with SchemaRegistryClient({**options, "ssl.ca.location": str(trusted)}) as client:
                assert client.register_schema(f"s{number}", Schema(('"int"', '"long"')[number], "AVRO")) == number + 1


def test_a_command_config_logs_in_to_a_broker(tmp_path: Path) -> None:
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{jaas} user_schemas="secret";',
        "group.initial.rebalance.delay.ms": 0,
    }
    file = tmp_path / "client.properties"
    login = f'sasl.jaas.config={jaas} username="schemas" password="secret";'
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{login}\n")
    with Broker(config=config) as broker:
        registry = RegistryProcess(broker.bootstrap_servers, tmp_path, "--command-config", str(file)).start()
        with SchemaRegistryClient({"url": registry.url}) as client:
            assert client.register_schema("all", Schema('"string"', "AVRO")) == 1
        assert registry.stop() == 0
