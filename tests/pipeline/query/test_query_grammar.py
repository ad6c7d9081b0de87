"""Queries from a grammar: Spark accepts them, their tables are found without Spark, and a way is chosen."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from query_grammar import KINDS, SCHEMAS, Query, cuts, logs, queries

from headrace.pipeline.maintenance.checks import check_view
from headrace.pipeline.maintenance.ways import Way
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.project.table_names import tables_of_sql
from headrace.pipeline.query.determinism import nondeterminism
from headrace.pipeline.query.quick_checks import check_sql

POSITION = "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, _key BINARY"
FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def tables(spark):
    for name, schema in SCHEMAS.items():
        spark.createDataFrame([], f"{schema}, {POSITION}").createOrReplaceTempView(name)
    yield
    for name in SCHEMAS:
        spark.catalog.dropTempView(name)


@FEW
@given(query=queries())
def test_spark_accepts_the_queries_and_they_are_deterministic(spark, tables, query: Query):
    assert nondeterminism(spark.sql(query.sql)) is None, query


@FEW
@given(query=queries())
def test_the_tables_are_found_without_spark(query: Query):
    assert {each.name for each in tables_of_sql(query.sql)} == query.tables
    assert check_sql(definition_of(query, "lambda")) == (None, None)


@FEW
@given(query=queries(), architecture=st.sampled_from(("lambda", "kappa")))
def test_the_choice_is_a_way_with_reasons_or_a_problem(spark, query: Query, architecture: str):
    problems, chosen = check_view(spark, definition_of(query, architecture))
    assert (chosen is None) == bool(problems), query
    if chosen is not None:
        assert chosen.way in (Way.COMBINE, Way.STREAM, Way.TOUCHED, Way.WHOLE)
        assert all(each.why for each in chosen.refused)
        assert chosen.cost.work


def definition_of(query: Query, architecture: str) -> ViewDefinition:
    """As ``project.resolution`` makes it: one source of events is the view's own."""
    decodes = {name: Decode(schema=schema) for name, schema in SCHEMAS.items()}
    text = FileText("views/made.sql", query.sql)
    if query.tables == {"orders"}:
        return ViewDefinition("made", ("orders",), "", architecture, text, decodes["orders"], source_name="orders")
    sources = tuple(SourceDefinition(name, KINDS[name], (name,), "", decodes[name]) for name in sorted(query.tables))
    return ViewDefinition("made", (), "", architecture, text, Decode(), sources=sources)


@FEW
@given(log=logs(frozenset(SCHEMAS)), cut=cuts)
def test_records_have_the_fields_of_their_source(log, cut):
    assert cut
    for record in log:
        assert record.key is None or KINDS[record.source] == "table"
        if isinstance(record.value, dict):
            names = {each.split()[0] for each in SCHEMAS[record.source].split(", ")}
            assert set(record.value) <= names
