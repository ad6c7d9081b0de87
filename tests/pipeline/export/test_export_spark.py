"""A view that Spark maintains is exported with the types of its query, and Spark reads the files of a snapshot."""

import datetime
from decimal import Decimal

import pytest
from deltalake import DeltaTable
from kappa_harness import KappaHarness

from headrace.pipeline.export.export_thread import ExportThread
from headrace.pipeline.project.definition import Export
from headrace.runtime.clock import SystemClock

QUERY = "SELECT page, count(*) AS n, CAST(sum(ms) AS DECIMAL(30, 2)) AS ms, max(at) AS at FROM events GROUP BY page"
AT = datetime.datetime(2026, 11, 16, 8, 30, tzinfo=datetime.UTC)


@pytest.fixture
def harness(spark, kafka, sqlite_url, tmp_path):
    made = KappaHarness(spark, kafka.bootstrap_servers, sqlite_url, tmp_path)
    yield made
    made.close()


def test_a_view_of_spark_is_exported_with_its_types_and_spark_reads_it(harness, spark, tmp_path):
    harness.produce(
        *({"page": page, "ms": ms, "at": "2026-11-16T08:30:00Z"} for page, ms in (("a", 1), ("a", 2), ("b", 5)))
    )
    version = harness.apply(harness.definition(QUERY, export=Export("out")))
    harness.run_once(version)
    harness.serve(version)
    exports = ExportThread(harness.database, harness.catalog, SystemClock(), tmp_path)
    assert exports.run_once() == []
    table = DeltaTable(tmp_path / "out")
    assert [str(field.type.type) for field in table.schema().fields] == ["string", "long", "decimal(30,2)", "timestamp"]
    found = spark.read.parquet(*table.file_uris()).orderBy("page").collect()
    assert [row.asDict() | {"at": row["at"].astimezone(datetime.UTC)} for row in found] == [
        {"page": "a", "n": 2, "ms": Decimal("3.00"), "at": AT},
        {"page": "b", "n": 1, "ms": Decimal("5.00"), "at": AT},
    ]
