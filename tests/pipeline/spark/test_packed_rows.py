"""Rows that come to this process as Arrow tables, some at a time."""

import pyarrow as pa

from headrace.pipeline.spark.packed_rows import Packed, packed


def _results_that_spark_keeps(spark) -> int:
    return spark._jsparkSession.sparkContext().dagScheduler().activeQueryToJobs().size()


def test_all_rows_come_in_several_tables(spark):
    with packed(spark.range(0, 120_000, 1, 2).selectExpr("id", "id % 7 AS c")) as tables:
        found = list(tables)
    assert len(found) == 4, "a table has up to 50,000 rows of a partition"
    assert sorted(pa.concat_tables(found)["id"].to_pylist()) == list(range(120_000))


def test_many_chunks_are_fetched_in_small_partitions(spark):
    rows = Packed(spark.range(0, 500_000, 1, 1))
    try:
        rows.start()
        assert rows.partitions() == 3, "a partition has up to 4 of 10 chunks"
        assert sum(table.num_rows for table in rows.tables()) == 500_000
    finally:
        rows.close()


def test_spark_keeps_no_results_that_were_fetched(spark):
    before = _results_that_spark_keeps(spark)
    with packed(spark.range(0, 120_000, 1, 2)) as tables:
        assert sum(table.num_rows for table in tables) == 120_000
    assert _results_that_spark_keeps(spark) == before
