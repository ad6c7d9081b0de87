"""The columns that identify a row of a query, for readers of the changes of a view."""

import pytest

from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import Publish, ViewDefinition
from headrace.pipeline.query.publish_checks import check_published_key
from headrace.pipeline.query.row_keys import identifying_columns
from headrace.pipeline.query.view_query import ViewError

CASES = {
    "SELECT page AS p, count(*) AS n FROM events GROUP BY page": ("p",),
    "SELECT page, day, count(*) AS n FROM events GROUP BY page, day HAVING count(*) > 1": ("page", "day"),
    "SELECT page, count(*) AS n FROM events GROUP BY page ORDER BY n DESC LIMIT 3": ("page",),
    "SELECT count(*) AS n FROM events": (),
    "SELECT DISTINCT page, day FROM events": ("page", "day"),
    "SELECT day, count(*) AS n FROM events GROUP BY page, day": None,
    "SELECT page, day FROM events": None,
    "SELECT page, explode(days) AS day FROM (SELECT page, collect_set(day) AS days FROM events GROUP BY page)": None,
    "SELECT page, count(*) AS n FROM events GROUP BY page UNION ALL SELECT page, 1 FROM events": None,
}


def definition(**more):
    return ViewDefinition("pages", ("clicks",), "", "kappa", FileText("pages.sql", ""), Decode(), **more)


@pytest.fixture
def events(spark):
    spark.createDataFrame([], "page STRING, day INT").createOrReplaceTempView("events")
    return spark


def test_the_columns_of_group_by_identify_a_row_if_all_are_shown(events):
    assert {sql: identifying_columns(definition(), events.sql(sql)) for sql in CASES} == CASES
    given = identifying_columns(definition(key=("day",)), events.sql("SELECT page, day FROM events"))
    assert given == ("day",)


def test_a_view_without_a_key_cannot_be_published(events):
    bag = events.sql("SELECT page, day FROM events")
    check_published_key(definition(), bag)
    check_published_key(definition(publish=Publish("out"), key=("page",)), bag)
    with pytest.raises(ViewError, match="needs a key, and the rows have none"):
        check_published_key(definition(publish=Publish("out")), bag)
