"""A Kappa view whose schema registry is away: it waits for the registry, and skips no record."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from kappa_harness import KappaHarness

from headrace.pipeline.kappa.stream import KappaStream
from headrace.pipeline.kappa.view import KappaView
from headrace.pipeline.project.decode import Decode
from headrace.pipeline.version.failures import FailureKind, classify_failure
from registry_harness import fake_registry

pytestmark = pytest.mark.timeout(300)
OLD = {"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}, {"name": "ms", "type": "int"}]}
NEW = {**OLD, "fields": [OLD["fields"][0], {"name": "ms", "type": "long"}]}


def written(schema: dict, schema_id: int, page: str, ms: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"page": page, "ms": ms})
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


@pytest.mark.parametrize("way", [KappaView, KappaStream], ids=["combined", "stream"])
def test_a_view_waits_for_its_registry_and_skips_no_record(spark, kafka, sqlite_url, tmp_path, way):
    harness = KappaHarness(spark, kafka.bootstrap_servers, sqlite_url, tmp_path)
    harness.way = way
    with fake_registry() as registry:
        old, new = registry.register(OLD), registry.register(NEW)
        decode = Decode("avro", json.dumps(NEW), framing="confluent", registry=registry.url)
        definition = harness.definition(decode=decode, dead_letters=f"{harness.topic}.dead")
        harness.apply(definition)
        harness.produce(written(OLD, old, "home", 1), written(OLD, old, "shop", 2))
        harness.run_once()
        before = harness.progress()
        harness.produce(written(NEW, new, "home", 3), b"\0no schema has this id")
        registry.broken = 503
        with pytest.raises(Exception, match=r"RegistryUnavailable|answers 503") as failed:
            harness.running().run_once()
        assert classify_failure(failed.value) is FailureKind.TRANSIENT
        assert sorted(harness.rows()) == [("home", 1, 1), ("shop", 1, 2)]
        assert (harness.progress().offsets, harness.progress().dead_letters) == (before.offsets, 0)
        registry.broken = None
        harness.run_once()
        assert sorted(harness.rows()) == [("home", 2, 4), ("shop", 1, 2)]
        assert harness.progress().dead_letters == 1
    harness.close()
