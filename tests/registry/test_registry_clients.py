"""Uses a registry through confluent-kafka's own client and serializers, and through the decoder of views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from headrace import Broker
from headrace.pipeline.changes.avro_records import AvroFormat
from headrace.pipeline.changes.outbox import Followed
from headrace.pipeline.changes.published_topic import PublishRefused
from headrace.pipeline.changes.row_values import ViewColumn
from headrace.pipeline.decoding.registry import RegistryUnavailable, SchemaRegistry, UnknownSchema
from headrace.pipeline.project.definition import Publish
from headrace.testing.registry_process import RegistryProcess

pytestmark = pytest.mark.xdist_group("registry-clients")

RECORD = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"x","type":"int"}]}'
WIDER = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"x","type":"long"}]}'
JSON_OBJECT = '{"title":"J","type":"object","properties":{"x":{"type":"integer"}}}'


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    with (
        Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker,
        RegistryProcess(broker.bootstrap_servers, tmp_path_factory.mktemp("registry")) as process,
    ):
        yield process


@pytest.fixture
def client(registry: RegistryProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_the_client_registers_finds_checks_and_deletes(client: SchemaRegistryClient) -> None:
    schema_id = client.register_schema("all", Schema(RECORD, "AVRO"))
    assert client.get_schema(schema_id).schema_str == RECORD
    assert client.lookup_schema("all", Schema(RECORD, "AVRO")).version == 1
    assert client.test_compatibility("all", Schema(WIDER, "AVRO"))
    assert client.test_compatibility_all_versions("all", Schema(WIDER, "AVRO"))
    assert not client.test_compatibility("all", Schema('"string"', "AVRO"))
    with pytest.raises(SchemaRegistryError) as raised:
        client.register_schema("all", Schema('"string"', "AVRO"))
    assert (raised.value.http_status_code, raised.value.error_code) == (409, 409)
    client.register_schema("all", Schema(WIDER, "AVRO"))
    assert client.get_versions("all") == [1, 2]
    assert client.get_latest_version("all").schema.schema_str == WIDER
    assert "all" in client.get_subjects()
    # Other tests register the same schema under their subjects.
    assert "all" in [each.subject for each in client.get_schema_versions(schema_id)]
    assert "all" in client.get_subjects_by_schema_id(schema_id)
    assert client.set_compatibility("all", "FULL") == {"compatibility": "FULL"}
    assert client.get_compatibility("all") == "FULL"
    assert client.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]
    assert client.delete_version("all", 1) == 1
    assert client.delete_subject("all") == [2]
    assert client.delete_subject("all", permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError) as raised:
        client.get_versions("all")
    assert raised.value.error_code == 40401


def test_avro_with_a_reference(client: SchemaRegistryClient) -> None:
    client.register_schema("part", Schema(RECORD, "AVRO"))
    whole = '{"type":"record","name":"W","fields":[{"name":"r","type":"n.R"}]}'
    schema = Schema(whole, "AVRO", [SchemaReference("n.R", "part", 1)])
    data = AvroSerializer(client, schema)({"r": {"x": 5}}, context("avro"))
    assert AvroDeserializer(client)(data, context("avro")) == {"r": {"x": 5}}
    assert client.get_referenced_by("part", 1) == [int.from_bytes(data[1:5], "big")]


def test_the_guid_in_a_header(client: SchemaRegistryClient) -> None:
    config = {"schema.id.serializer": header_schema_id_serializer}
    at = SerializationContext("headers", MessageField.VALUE, [])
    text = '{"type":"record","name":"Text","fields":[{"name":"text","type":"string"}]}'
    # The client takes data of at most five bytes for a record without a schema.
    data = AvroSerializer(client, text, conf=config)({"text": "123456"}, at)
    assert data == b"\x0c123456"
    assert isinstance(at.headers, list)
    assert [name for name, _ in at.headers] == ["__value_schema_id"]
    schema = client.get_latest_version("headers-value")
    assert client.get_schema_by_guid(str(schema.guid)).schema_str == text
    reader = AvroDeserializer(client, conf={"schema.id.deserializer": dual_schema_id_deserializer})
    assert reader(data, at) == {"text": "123456"}


def test_a_version_with_two_properties(client: SchemaRegistryClient) -> None:
    for number in ("1", "2"):
        properties = MetadataProperties({"number": number, "team": "a"})
        metadata = Metadata(tags=None, properties=properties, sensitive=None)
        client.register_schema("properties", Schema(RECORD, "AVRO", metadata=metadata))
    found = client.get_latest_with_metadata("properties", {"number": "1", "team": "a"})
    assert found.version == 1


def test_settings(client: SchemaRegistryClient, registry: RegistryProcess) -> None:
    client.register_schema("settings", Schema(RECORD, "AVRO"))
    client.set_config("settings", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL, compatibility_group="team"))
    found = client.get_config("settings")
    assert (found.compatibility_level, found.compatibility_group) == (ConfigCompatibilityLevel.FULL, "team")
    alias = Request(f"{registry.url}/config/other-name", json.dumps({"alias": "settings"}).encode(), method="PUT")
    urlopen(alias, timeout=30).close()
    assert client.get_latest_version("other-name").subject == "settings"
    client.delete_config("other-name")
    with pytest.raises(SchemaRegistryError) as raised:
        client.delete_config("other-name")
    assert raised.value.error_code == 40401
    assert client.test_compatibility("never-registered", Schema(RECORD, "AVRO"))


def test_modes(client: SchemaRegistryClient) -> None:
    schema_id = client.register_schema("modes", Schema(RECORD, "AVRO"))
    client.update_mode("modes", "READONLY")
    assert client.get_mode("modes") == "READONLY"
    client.clear_caches()
    assert client.register_schema("modes", Schema(RECORD, "AVRO")) == schema_id
    with pytest.raises(SchemaRegistryError) as raised:
        client.register_schema("modes", Schema(WIDER, "AVRO"))
    assert raised.value.error_code == 42205
    client.delete_mode("modes")
    assert client.get_global_mode() == "READWRITE"


def test_contexts(client: SchemaRegistryClient) -> None:
    client.register_schema(":.clients:only", Schema('"bytes"', "AVRO"))
    assert ".clients" in client.get_contexts()
    assert client.get_latest_version("only").subject == ":.clients:only"
    assert client.get_schema(1, "only").schema_str == '"bytes"'


def test_json(client: SchemaRegistryClient) -> None:
    data = JSONSerializer(JSON_OBJECT, client)({"x": 5}, context("json"))
    reader = JSONDeserializer(JSON_OBJECT, schema_registry_client=client)
    assert reader(data, context("json")) == {"x": 5}


def test_protobuf_with_a_dependency(client: SchemaRegistryClient) -> None:
    kind = _message_class()
    message: Any = kind(part={"number": 7}, at={"seconds": 5})
    data = ProtobufSerializer(kind, client)(message, context("proto"))
    assert ProtobufDeserializer(kind, {}, client)(data, context("proto")) == message
    assert client.get_versions("dir/part.proto") == [1]
    stored = client.get_latest_version("proto-value").schema
    assert 'import "dir/part.proto";' in str(stored.schema_str)
    assert "  .part.Part part = 1;" in str(stored.schema_str).splitlines()


def _message_class() -> Any:
    part = descriptor_pb2.FileDescriptorProto(name="dir/part.proto", package="part", syntax="proto3")
    part.message_type.add(name="Part").field.add(name="number", number=1, type=5, label=1)
    whole = descriptor_pb2.FileDescriptorProto(
        name="whole.proto",
        package="whole",
        syntax="proto3",
        dependency=["dir/part.proto", "google/protobuf/timestamp.proto"],
    )
    message = whole.message_type.add(name="Whole")
    message.field.add(name="part", number=1, type=11, label=1, type_name=".part.Part")
    message.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    pool = descriptor_pool.DescriptorPool()
    for file in (timestamp, part, whole):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("whole.Whole"))


def test_the_decoder_of_views_asks_it(client: SchemaRegistryClient, registry: RegistryProcess) -> None:
    client.register_schema("views-part", Schema(RECORD, "AVRO"))
    whole = '{"type":"record","name":"V","fields":[{"name":"r","type":"n.R"}]}'
    schema = Schema(whole, "AVRO", [SchemaReference("n.R", "views-part", 1)])
    schema_id = client.register_schema("views", schema)
    found = SchemaRegistry(registry.url).schema(schema_id)
    assert (found.kind, found.text, dict(found.references)) == ("AVRO", whole, {"n.R": RECORD})
    assert SchemaRegistry(registry.url).latest("none") is None
    with pytest.raises(UnknownSchema):
        SchemaRegistry(registry.url).schema(999_999)


def test_the_client_reads_the_changes_of_a_published_view(
    client: SchemaRegistryClient, registry: RegistryProcess
) -> None:
    publish = Publish("published", "avro", registry.url)
    columns = (ViewColumn("page", "TEXT"), ViewColumn("clicks", "BIGINT"))
    state = Followed("pages", "stream", columns, ("page",), 1, 0, "", {})
    records, reader = AvroFormat.of(publish, state), AvroDeserializer(client)
    key, value = records.key({"page": "home"}), records.value({"page": "home", "clicks": 3})
    assert reader(key, SerializationContext("published", MessageField.KEY)) == {"page": "home"}
    assert reader(value, context("published")) == {"page": "home", "clicks": 3}
    changed = replace(state, columns=(columns[0], ViewColumn("clicks", "BOOLEAN")))
    with pytest.raises(PublishRefused, match=r"incompatible.*published-value"):
        AvroFormat.of(publish, changed)
    assert client.get_versions("published-value") == [1]


def test_what_was_acknowledged_survives_kill_9_and_a_stop(tmp_path: Path) -> None:
    with Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        first = RegistryProcess(broker.bootstrap_servers, tmp_path).start()
        with SchemaRegistryClient({"url": first.url}) as client:
            schema_id = client.register_schema("s", Schema(RECORD, "AVRO"))
        first.kill()
        decoder = SchemaRegistry(first.url)
        with pytest.raises(RegistryUnavailable):
            decoder.schema(schema_id)
        second = RegistryProcess(broker.bootstrap_servers, tmp_path).start()
        with SchemaRegistryClient({"url": second.url}) as client:
            assert client.get_schema(schema_id).schema_str == RECORD
        assert second.stop() == 0
