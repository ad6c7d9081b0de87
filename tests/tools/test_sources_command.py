"""headrace sources: the file of a source from the records of a topic."""

from __future__ import annotations

import json
import tomllib

import pytest

from headrace import Producer
from headrace.pipeline.project.loading import read_project
from headrace.tools.main import COMMANDS
from headrace.tools.sources.command import main
from registry_harness import fake_registry


@pytest.fixture
def project(broker, tmp_path):
    (tmp_path / "headrace.toml").write_text(f'[log]\nbootstrap = "{broker.bootstrap_servers}"\n')
    return tmp_path


@pytest.fixture
def sources(project, capsys):
    """Runs the command in the project, and returns its exit code and what it printed."""

    def run(command: str, *arguments: str) -> tuple[int, str, str]:
        code = main([command, "--project", str(project), *arguments])
        return code, *capsys.readouterr()

    return run


def _send(broker, topic: str, records: list[tuple[bytes | None, bytes | None]]) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for key, value in records:
            producer.send(topic, value, key=key)
        producer.flush()


def test_a_topic_of_json(broker, admin, project, sources):
    admin.create_topic("shop.orders", num_partitions=3)
    _send(broker, "shop.orders", [(None, json.dumps({"id": n, "price": n / 2}).encode()) for n in range(60)])
    code, out, _ = sources("infer", "shop.orders")
    assert code == 0
    assert "shop.orders: 60 records, kind events, format json" in out
    (source,) = read_project(project).project.sources.values()
    assert (source.name, source.topics) == ("shop_orders", ("shop.orders",))
    assert source.decode.schema == "id BIGINT NOT NULL, price DOUBLE NOT NULL"
    code, _, err = sources("infer", "shop.orders")
    assert code == 1
    assert "exists: replace it with --force" in err
    assert sources("infer", "shop.orders", "--force", "--records", "9", "--kind", "events")[0] == 0
    assert "from 9 records" in (project / "sources" / "shop_orders.toml").read_text()


def test_a_compacted_topic_is_a_table(broker, admin, project, sources):
    admin.create_topic("people", num_partitions=1, configs={"cleanup.policy": "compact"})
    _send(broker, "people", [(b"1", b'{"name":"ann"}'), (b"2", b'{"name":"bob"}'), (b"2", None)])
    code, out, _ = sources("infer", "people", "--json")
    assert code == 0
    assert json.loads(out)["kind"] == "table"
    made = tomllib.loads((project / "sources" / "people.toml").read_text())
    assert made["kind"] == "table"
    assert made["decode"]["key"] == {"format": "csv", "schema": "key BIGINT"}


def test_records_that_have_changed(broker, admin, project, sources):
    admin.create_topic("prices", num_partitions=1)
    _send(broker, "prices", [(None, b'{"id":1,"price":2.5}')])
    assert sources("infer", "prices")[0] == 0
    assert sources("check") == (0, "prices: the schema has the fields of 1 records\n", "")
    _send(broker, "prices", [(None, b'{"id":1,"cost":2.5}')] * 3)
    code, out, _ = sources("check", "prices", "--records", "2")
    assert code == 1
    assert out.splitlines() == [
        "prices: the column price is in none of 2 records",
        "prices: the records have a field cost DOUBLE, and the schema does not",
    ]


def test_what_cannot_be_inferred(broker, admin, sources):
    admin.create_topic("empty", num_partitions=1)
    assert sources("infer", "empty")[:2] == (1, "")
    assert "no record has a value" in sources("infer", "empty")[2]
    assert sources("infer", "9lives")[0] == 2
    assert sources("infer", "empty", "--records", "0")[0] == 2
    assert sources("check", "nothing")[0] == 2


def test_avro_of_a_registry(broker, admin, project, sources, registry):
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    number = registry.register(schema)
    admin.create_topic("avro", num_partitions=1)
    _send(broker, "avro", [(None, b"\0" + number.to_bytes(4, "big") + b"\x0e")])
    code, out, _ = sources("infer", "avro")
    assert code == 0
    assert "run it again with --registry URL" in out
    assert sources("infer", "avro", "--registry", registry.url, "--force")[0] == 0
    draft = read_project(project)
    assert draft.problems == []
    decode = draft.project.sources["avro"].decode
    assert (decode.format, decode.framing, decode.registry) == ("avro", "confluent", registry.url)
    assert json.loads(decode.schema) == schema
    registry.broken = 503
    assert "answers 503" in sources("infer", "avro", "--registry", registry.url, "--force")[2]


def test_json_of_a_registry(broker, admin, project, sources, registry):
    properties = {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}
    schema = {"type": "object", "properties": properties, "required": ["id"]}
    number, bare = registry.register(schema, kind="JSON"), registry.register({"type": "object"}, kind="JSON")
    admin.create_topic("jsons", num_partitions=1)
    _send(broker, "jsons", [(None, b"\0" + number.to_bytes(4, "big") + b'{"id":1}')])
    assert sources("infer", "jsons", "--registry", registry.url)[0] == 0
    draft = read_project(project)
    assert draft.problems == []
    decode = draft.project.sources["jsons"].decode
    assert (decode.format, decode.framing, decode.registry) == ("json", "confluent", registry.url)
    assert decode.schema == "id BIGINT NOT NULL, at TIMESTAMP", "of the registry, not of the records"
    _send(broker, "jsons", [(None, b"\0" + bare.to_bytes(4, "big") + b'{"id":1}')])
    code, out, _ = sources("infer", "jsons", "--registry", registry.url, "--force")
    assert code == 0
    assert "the columns are those of the records" in out


@pytest.fixture
def registry():
    with fake_registry() as made:
        yield made


def test_the_command_is_registered():
    assert COMMANDS["sources"][0] == "headrace.tools.sources.command"
