"""The choice how a view is kept up to date: the cheapest exact way for its query, with reasons and cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.pipeline.maintenance.checks import check_views
from headrace.pipeline.maintenance.choice import choose
from headrace.pipeline.maintenance.explanation import explain_view, lines_of
from headrace.pipeline.maintenance.ways import MEANINGS, WAYS_OF, Way, stored_way
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import KappaSettings, Keep, LambdaSettings, ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition, Watermark
from headrace.pipeline.query.project_checks import ViewToCheck
from headrace.pipeline.query.view_query import ViewError

SCHEMA = "user STRING, page STRING, ms BIGINT, at TIMESTAMP"
PAGES = "SELECT page, count(*) AS n, avg(ms) AS ms FROM events GROUP BY page"


def view(query: str, architecture: str = "lambda", **more) -> ViewDefinition:
    return ViewDefinition(
        name="pages", topics=("clicks",), pattern="", architecture=architecture,
        query=FileText("views/pages.sql", query), decode=Decode(schema=SCHEMA), file=Path("views/pages.toml"), **more,
    )  # fmt: skip


def test_a_lambda_view_combines(spark):
    found = choose(spark, view(PAGES))
    assert found.way is Way.COMBINE
    assert found.reason == "it groups by events.page, and its functions (count, avg) can be combined from parts"
    assert found.refused == ()
    assert found.cost.records_read == 3
    assert found.cost.jobs == 0
    assert "up to 20,000 records needs no Spark job" in found.cost.work
    assert "the next batch (1 hour after the last one)" in found.cost.reads
    assert "one row of 3 partial results" in found.cost.state


def test_what_needs_a_worker_costs_a_job(spark):
    query = FileText("views/pages.py", '''
from pyspark.sql import functions as F

@F.udf("STRING")
def upper(page):
    return page.upper()

def pages(events):
    return events.groupBy(upper("page").alias("page")).count()
''', "pages")  # fmt: skip
    found = choose(spark, _with(query))
    assert found.way is Way.COMBINE
    assert found.cost.jobs == 1
    assert "one Spark job: its functions need a worker" in found.cost.work


def _with(query: FileText) -> ViewDefinition:
    return ViewDefinition(
        name="pages", topics=("clicks",), pattern="", architecture="lambda", query=query,
        decode=Decode(schema=SCHEMA), lambda_=LambdaSettings(batch_every_ms=0), file=Path("views/pages.toml"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("query", "watermark", "words"),
    [
        (PAGES, Watermark("at", "1 hour"), ("one entry per group until the watermark has passed it", "one row per")),
        (
            f"{PAGES} HAVING count(*) > 1",
            Watermark("at", "1 hour"),
            ("one entry per group", "all rows of the answer"),
        ),
    ],
)
def test_a_kappa_view_with_a_watermark_streams(spark, query, watermark, words):
    found = choose(spark, view(query, "kappa", watermark=watermark))
    assert found.way is Way.STREAM
    assert (found.cost.records_read, found.cost.jobs) == (1, 1)
    assert words[0] in found.cost.state
    assert words[1] in found.cost.work


def test_a_kappa_view_without_a_watermark_is_combined(spark):
    found = choose(spark, view(PAGES, "kappa"))
    assert found.way is Way.COMBINE
    assert (found.cost.records_read, found.cost.jobs) == (1, 0)
    assert "partial results, in the row of the group" in found.cost.state


def test_a_kappa_view_on_a_cluster_streams(spark):
    """Also if it is applied by a Spark on this machine, as ``views apply`` starts it."""
    spark.conf.set("spark.headrace.viewsMaster", "spark://master:7077")
    try:
        found = choose(spark, view(PAGES, "kappa"))
        asked = choose(spark, view(PAGES, "kappa", maintain="combine"))
    finally:
        spark.conf.unset("spark.headrace.viewsMaster")
    assert found.way is Way.STREAM
    (refused,) = found.refused
    assert refused.way is Way.COMBINE
    assert "on a Spark cluster" in refused.why
    assert asked.way is Way.COMBINE
    assert "one entry per group, forever: the view has no [watermark]" in found.cost.state


@pytest.mark.parametrize(
    ("architecture", "query", "way"),
    [
        ("kappa", "SELECT user, parse_json(page) AS doc FROM events", Way.STREAM),
        ("lambda", "SELECT user, parse_json(max(page)) AS doc FROM events GROUP BY user", Way.COMBINE),
    ],
)
def test_a_variant_is_stored_as_json_and_not_as_bytes(spark, architecture, query, way):
    key = ("user",) if architecture == "kappa" else ()
    found = choose(spark, view(query, architecture, key=key))
    assert found.way is Way.TOUCHED
    (refused,) = [each for each in found.refused if each.way is way]
    assert refused.why == "its column doc is a VARIANT, which this way cannot store: to_json(doc) is the same as a text"


def test_rows_without_groups_have_no_state(spark):
    found = choose(spark, view("SELECT user, page FROM events", "kappa", key=("user",)))
    assert found.cost.state == "nothing besides the answer and the offsets"


@pytest.mark.parametrize(
    ("architecture", "query", "why"),
    [
        ("lambda", "SELECT page, count(DISTINCT user) AS n FROM events GROUP BY page", "cannot be combined from parts"),
        ("lambda", "SELECT page FROM events", "it does not aggregate"),
        ("kappa", "SELECT page, count(DISTINCT user) AS n FROM events GROUP BY page", "Distinct aggregations"),
        ("kappa", "SELECT page FROM events", "has no GROUP BY, so it has no key"),
    ],
)
def test_what_the_cheapest_way_cannot_do_is_kept_by_touched_keys(spark, architecture, query, why):
    found = choose(spark, view(query, architecture))
    assert found.way is Way.TOUCHED
    usual = Way.COMBINE if architecture == "lambda" else Way.STREAM
    (reason,) = [each.why for each in found.refused if each.way is usual]
    assert why in reason


def test_the_cost_of_touched_keys(spark):
    query = "SELECT page, count(DISTINCT user) AS n FROM events GROUP BY page"
    found = choose(spark, view(query))
    assert "groups by" in found.reason
    assert (found.cost.records_read, found.cost.jobs) == (3, 2)
    assert "2 columns of each row of events" in found.cost.state
    total = choose(spark, view("SELECT count(DISTINCT user) AS n FROM events", "kappa"))
    assert total.cost.records_read == 1
    assert "Without a key: groups, so every micro-batch computes all of its rows again" in total.cost.work
    plain = choose(spark, view("SELECT page FROM events"))
    assert plain.reason == "each of its rows depends on one row of a source"
    assert plain.cost.state == "nothing besides the answer and the offsets"


def test_a_join_is_described_with_its_sources(spark):
    orders = SourceDefinition("orders", "events", ("orders",), "", Decode(schema="id BIGINT, customer BIGINT"))
    customers = SourceDefinition("customers", "table", ("c",), "", Decode(schema="customer BIGINT, country STRING"))
    query = "SELECT c.country, count(*) AS n FROM orders o JOIN customers c ON o.customer = c.customer GROUP BY 1"
    definition = ViewDefinition(
        "sales", (), "", "kappa", FileText("views/sales.sql", query), Decode(), sources=(orders, customers)
    )
    found = choose(spark, definition)
    assert found.way is Way.TOUCHED
    assert found.refused[0].why == "it reads several sources"
    assert "join of orders and customers by " in found.reason
    assert "of each row of customers" in found.cost.state
    assert "2 sums per group of orders and customers" in found.cost.state


def test_a_way_that_the_file_asks_for(spark):
    found = choose(spark, view(PAGES, maintain="combine"))
    assert (found.way, found.reason) == (Way.COMBINE, 'maintain = "combine" asks for it')
    touched = choose(spark, view(PAGES, maintain="touched"))
    assert touched.way is Way.TOUCHED
    assert touched.refused[0].why == 'it would be exact, but maintain = "touched" asks for another way'
    with pytest.raises(ViewError, match='maintain = "combine" is not exact for this query: it does not aggregate'):
        choose(spark, view("SELECT page FROM events", maintain="combine"))
    with pytest.raises(
        ViewError, match='"stream" is not a way of a lambda view: set "combine" or "touched" or "whole"'
    ):
        choose(spark, view(PAGES, maintain="stream"))


def test_a_whole_answer_can_be_asked_for(spark):
    found = choose(spark, view(PAGES, maintain="whole"))
    assert found.way is Way.WHOLE
    assert [each.way for each in found.refused] == [Way.COMBINE, Way.TOUCHED]
    assert "reads all records from the start; a build begins 1 hour after the last one" in found.cost.reads


PANDAS = FileText("views/pages.py", '''
def largest(group):
    return group.nlargest(1, "ms")[["page", "ms"]]

def pages(events):
    return events.groupBy("page").applyInPandas(largest, "page STRING, ms BIGINT")

def upper(batches):
    for batch in batches:
        yield batch.assign(page=batch.page.str.upper())[["page"]]

def mapped(events):
    return events.mapInPandas(upper, "page STRING")
''', "pages")  # fmt: skip


@pytest.mark.parametrize("architecture", ["lambda", "kappa"])
@pytest.mark.parametrize(("function", "why"), [("pages", "it uses applyInPandas"), ("mapped", "sees whole partitions")])
def test_the_last_resort_is_the_whole_answer(spark, architecture, function, why):
    definition = replace(_with(replace(PANDAS, function=function)), architecture=architecture)
    found = choose(spark, replace(definition, kappa=KappaSettings(batch_every_ms=120_000)))
    assert found.way is Way.WHOLE
    assert found.reason.startswith("no cheaper way is exact for it")
    assert [each.way for each in found.refused] == list(WAYS_OF[architecture][:-1])
    assert why in found.refused[-1].why
    when = {"lambda": "when it is asked for", "kappa": "2 minutes after the last one"}[architecture]
    assert found.cost.reads.endswith(f"a build begins {when}")
    _, ways, notes = check_views(spark, [ViewToCheck(definition, ())])
    assert ways == {"pages": "whole"}
    assert why in notes["pages"]
    assert "a build reads all records from the start" in notes["pages"]


def test_who_asks_for_a_whole_answer_is_not_told_about_it(spark):
    assert check_views(spark, [ViewToCheck(view(PAGES, maintain="whole"), ())]).notes == {}


DAYS = "SELECT window(at, '1 day') AS day, count(*) AS n FROM events GROUP BY 1"


@pytest.mark.parametrize("architecture", ["lambda", "kappa"])
def test_keep_is_for_ways_that_delete_rows(spark, architecture):
    found = choose(spark, view(DAYS, architecture, keep=Keep("at", "7 days")))
    assert found.way is Way.TOUCHED
    assert {each.why for each in found.refused} == {"it has [keep], and this way never deletes rows"}
    assert found.cost.state.endswith("2 sums per group of events that [keep] keeps")
    whole = choose(spark, view(DAYS, architecture, maintain="whole", keep=Keep("day_end", "7 days")))
    assert whole.way is Way.WHOLE
    with pytest.raises(ViewError, match=r'"combine" is not exact for this query: it has \[keep\]'):
        choose(spark, view(DAYS, architecture, maintain="combine", keep=Keep("at", "7 days")))


@pytest.mark.parametrize("maintain", ["", "touched", "whole"])
def test_no_way_ignores_keep(spark, maintain):
    with pytest.raises(ViewError, match=r'\[keep\] column = "at": no column of the answer .* or remove \[keep\]'):
        choose(spark, view(PAGES, maintain=maintain, keep=Keep("at", "7 days")))


def test_watermarks_are_explained(spark):
    watermark = Watermark("at", "1 hour")
    for maintain in ("touched", "whole"):
        found = choose(spark, view(PAGES, "kappa", maintain=maintain, watermark=watermark))
        assert "Of events, events are left out whose time is before the watermark" in found.cost.work
    clicks = SourceDefinition("clicks", "events", ("c",), "", Decode(schema=SCHEMA), watermark=watermark)
    both = replace(view("SELECT count(DISTINCT a.user) AS n FROM clicks a JOIN clicks b USING (page)"),
                   topics=(), sources=(clicks, replace(clicks, name="others")))  # fmt: skip
    assert "a Lambda view does not use the watermark of clicks and others" in choose(spark, both).cost.work


def test_the_way_of_a_version():
    assert stored_way({"architecture": "lambda", "way": "touched"}) == "touched"
    assert stored_way({"architecture": "lambda", "way": ""}) == "combine"
    assert stored_way({"architecture": "kappa"}) == "stream"


def test_an_explanation_has_numbers_and_words(spark):
    problems, explanation = explain_view(spark, view(PAGES), {})
    assert problems == []
    assert explanation is not None
    assert explanation["way"] == "combine"
    assert explanation["cost"]["spark_jobs_per_micro_batch"] == 0
    lines = lines_of(explanation)
    assert lines[0].startswith("pages (lambda) is kept up to date by combine: partial results of new records")
    assert lines[2].startswith("each record is read 3 times: by the speed layer, ")


def test_problems_instead_of_an_explanation(spark):
    problems, explanation = explain_view(spark, view("SELECT pge FROM events"), {})
    assert explanation is None
    assert "there is no column pge" in str(problems[0])


def test_every_way_is_explained():
    assert set(MEANINGS) == set(Way)
    assert {way for ways in WAYS_OF.values() for way in ways} == set(Way)
