"""Checks what the start of a lone broker imports and defines. A start is mostly imports, so each module counts."""

import json
import subprocess
import sys

import pytest

_PROGRAM = """
import asyncio, json, sys
from dataclasses import is_dataclass
from headrace.broker.broker import Broker
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.tools.start import command

async def start(folder):
    command.parser()
    broker = Broker(BrokerConfig.load({"log.dirs": folder, "listeners": "PLAINTEXT://127.0.0.1:0"}))
    await broker.start()
    ours = {name: module for name, module in sys.modules.items() if name.startswith("headrace")}
    values = {f"{name}.{key}" for name, module in ours.items() for key, value in vars(module).items()
              if isinstance(value, type) and is_dataclass(value) and value.__module__ == name}
    report = {"modules": list(sys.modules), "dataclasses": sorted(values)}
    await broker.stop()
    print(json.dumps(report))

asyncio.run(start(sys.argv[1]))
"""

#: Packages that only a feature needs, which a broker does not have by default.
_PACKAGES = (
    "confluent_kafka", "cramjam", "cryptography", "google", "hypothesis", "jwt", "kazoo", "opentelemetry",
    "prometheus_client", "re2", "rich", "shtab",
)  # fmt: skip
#: Our own modules with their submodules, of features that a broker does not have by default, or needs later.
_FEATURES = (
    "headrace.broker.authentication.authentication", "headrace.broker.authentication.delegation_tokens",
    "headrace.broker.authorization.acl_authorizer", "headrace.broker.authorization.stored_rules",
    "headrace.broker.cluster", "headrace.broker.metrics.exporter", "headrace.broker.telemetry.otlp", "headrace.client",
    "headrace.controller.decisions", "headrace.coordination.server", "headrace.http_endpoints",
    "headrace.log.compaction", "headrace.pipeline", "headrace.registry", "headrace.security.acls.rule_index",
    "headrace.security.sasl.scram", "headrace.security.tls", "headrace.security.tokens", "headrace.testing",
)  # fmt: skip


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> dict[str, list[str]]:
    """The modules and dataclasses of a process in which a lone broker has started."""
    folder = tmp_path_factory.mktemp("start") / "data"
    command = [sys.executable, "-c", _PROGRAM, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_features_that_are_not_used_are_not_imported(start):
    unwanted = (*_PACKAGES, *_FEATURES)
    assert [name for name in start["modules"] if any(f"{name}.".startswith(f"{one}.") for one in unwanted)] == []


def test_no_handler_is_imported_before_its_first_request(start):
    assert [name for name in start["modules"] if name.startswith("headrace.broker.handlers.")] == []


def test_a_start_imports_few_of_our_modules(start):
    """A module takes 0.1 to 0.3 ms. Raise the number only for a module that every broker needs."""
    assert len([name for name in start["modules"] if name.startswith("headrace")]) <= 222


def test_a_start_defines_no_dataclasses_but_these(start):
    """A dataclass takes 0.7 ms to define, a NamedTuple 0.15 ms."""
    assert start["dataclasses"] == ["headrace.coordination.tree.znode.Znode", "headrace.log.config.LogConfig"]
