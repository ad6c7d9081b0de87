"""The pages about views: what they read from a catalog without Spark, as HTML and as JSON."""

from __future__ import annotations

import json
import sys
from urllib.parse import quote

import pytest
from console_harness import Elements
from views_project import HOSTILE

from headrace import Admin, Producer
from headrace.client.types import TopicPartition
from headrace.pipeline.shared_spark.server import SharedSparkServer


async def test_the_graph_and_the_views_with_their_versions(console, project):
    found = await console.json("/api/views")
    (view,) = found["status"]["views"]
    assert (view["name"], view["serving"]["version"], view["serving"]["state"]) == ("pages", 1, "serving")
    assert [version["state"] for version in view["versions"]] == ["serving", "caught_up"]
    assert (view["serving"]["dead_letters"], view["serving"]["way"]) == (3, "combine")
    assert found["rows"] == {"pages": 3}
    page = Elements(await console.page("/views"))
    assert "pages (kappa)" in page.text
    assert "/views/pages" in [each["href"] for each in page.named("a")]
    assert "'headrace views run' is not running" in page.text


async def test_a_view_shows_its_versions_side_by_side_and_its_query_as_written(console):
    html = await console.page("/views/pages")
    page = Elements(html)
    assert "<script>alert" not in html
    assert f"-- {HOSTILE} FROM events GROUP BY page" in page.text
    assert "/actions/switch-view?view=pages&version=2" in [each["href"] for each in page.named("a")]
    found = await console.json("/api/views/pages")
    assert [each["topics"] for each in found["definitions"]] == [["clicks"], ["clicks"]]
    assert found["view"]["versions"][0]["offsets"] == [{"topic": "clicks", "partition": 0, "offset": 5}]


_EXPLANATION = {
    "view": "pages",
    "architecture": "kappa",
    "way": "combine",
    "reason": f"counts can be added {HOSTILE}",
    "refused": [{"way": "append", "why": "the rows change"}],
    "cost": {
        "records_read_per_event": 1,
        "reads": "by its stream",
        "spark_jobs_per_micro_batch": 1,
        "work": "the touched keys",
        "state": "none in Spark",
    },
    "warnings": [],
}


async def test_the_plan_is_that_of_the_running_spark(console, project):
    plans = (await console.json("/api/views/pages"))["plans"]
    assert [(each["version"], each["lines"]) for each in plans] == [(2, []), (1, [])]
    assert "'headrace views run' is not running" in plans[0]["unknown"]
    asked, imported = [], set(sys.modules)

    def answer(request):
        asked.append(request["view"]["definition"]["query"]["text"].split(" AS")[0])
        return {"answer": {"problems": [], "explanation": _EXPLANATION}}

    with SharedSparkServer(project.folder, answer):
        for _ in range(2):  # the second time, the answers are known
            html = await console.page("/views/pages")
    assert asked == ["SELECT page, sum(2)", "SELECT page, count(*)"]
    assert "<script>alert" not in html
    text = Elements(html).text
    assert f"why: counts can be added {HOSTILE}" in text
    assert "not append: the rows change" in text
    assert "each record is read once: by its stream" in text
    assert not any(name.startswith("pyspark") for name in sys.modules.keys() - imported)


async def test_a_view_shows_the_age_and_the_lag_of_its_versions_over_time(console, broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        if "clicks" not in admin.list_topics():
            admin.create_topic("clicks", num_partitions=1)
        end = admin.list_offsets({TopicPartition("clicks", 0): "latest"}).value(TopicPartition("clicks", 0)).offset
    await console.services.history.sampler.sample()
    lines = {line["title"]: line["points"] for line in (await console.json("/api/views/pages"))["lines"]}
    assert list(lines) == ["Age of v1", "Lag of v1", "Age of v2", "Lag of v2"]
    assert 0 <= lines["Age of v1"][-1]["value"] < 60_000
    assert lines["Lag of v1"][-1]["value"] == max(0, end - 5)
    assert "Lag of v2: now" in await console.page("/views/pages?span=24h")


async def test_a_console_with_a_login_samples_no_views(open_console, project, broker):
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    console = await open_console(project=project.folder, needs_login=True, clients=servers, sampler=servers)
    assert (await console.services.history.sampler.sample()).measures == {}


async def test_two_versions_are_compared_by_text_and_by_rows(console):
    found = await console.json("/api/views/pages/comparison")
    assert (found["left"], found["right"]) == (1, 2)
    changed = [line for line in found["texts"] if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert [line.split(" --")[0] for line in changed] == [
        "-SELECT page, count(*) AS clicks",
        "+SELECT page, sum(2) AS clicks",
    ]
    assert found["rows"]["columns"] == ["version", "page", "clicks"]
    assert found["rows"]["rows"] == [[1, "about", 1], [1, "home", 3], [2, "home", 7], [2, "new", 1]]
    same = await console.json("/api/views/pages/comparison?left=1&right=1")
    assert (same["texts"], same["rows"]["rows"]) == ([], [])
    assert "<script>alert" not in await console.page("/views/pages/comparison")


async def test_from_a_row_to_the_records_that_it_counts(console, broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        if "clicks" not in admin.list_topics():
            admin.create_topic("clicks", num_partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for page in ("home", "about", "home", "x", "home", "home"):
            producer.send("clicks", value=json.dumps({"page": page}).encode(), partition=0)
    found = await console.json("/api/views/pages/rows")
    rows = dict(zip((row[0] for row in found["table"]["rows"]), found["keys"], strict=True))
    assert json.loads(rows["home"]) == {"page": "home"}
    row = await console.json(f"/api/views/pages/row?key={quote(rows['home'])}")
    assert row["table"]["rows"] == [["home", 3]]
    assert sorted(record["offset"] for record in row["records"]) == [0, 2, 4]
    page = Elements(await console.page(f"/views/pages/row?key={quote(rows[HOSTILE])}"))
    assert HOSTILE in page.text
    links = [each["href"] for each in page.named("a")]
    assert "/topics/clicks/records?partition=0&start=offset&offset=0" in links


async def test_from_a_record_to_the_row_that_counts_it(console, open_console, project, broker):
    topic = "records-of-rows"
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic(topic, num_partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for page in ("home", "nowhere", HOSTILE):
            producer.send(topic, value=json.dumps({"page": page}).encode())
        producer.send(topic, key=b'{"page": "about"}', value=b'{"page": ["about"]}')
        producer.send(topic, key=b'{"page": "about"}', value=b"{}")
        for page in ("a\0b", "\ud800", "x" * 6_000):
            producer.send(topic, value=json.dumps({"page": page}).encode())
    project.serve(
        project.add({"home": 1, "about": 1, HOSTILE: 1}, query="q", view="by_topic", topic=topic, end=3), "by_topic"
    )

    async def view_of(offset, asked=console):
        (found,) = (await asked.json(f"/api/topics/{topic}/records/0/{offset}"))["views"]
        return found["is_counted"], found["as_of"], found["row_key"], found["row_problem"]

    assert await view_of(0) == (True, 3, '{"page": "home"}', "")
    assert await view_of(1) == (True, 3, "", 'there is no row with the key {"page": "nowhere"}')
    assert await view_of(3) == (False, 3, "", "the record has no field page, which is a column of the key")
    assert await view_of(4) == (False, 3, '{"page": "about"}', "")
    assert {(await view_of(offset))[3][:19] for offset in (5, 6, 7)} == {"the key is too long"}
    html = await console.page(f"/topics/{topic}/records/0/2")
    assert "<script>alert" not in html
    links = [each["href"] for each in Elements(html).named("a")]
    (row,) = [each for each in links if each.startswith("/views/by_topic/row?")]
    assert (await console.json(f"/api{row}"))["table"]["rows"] == [[HOSTILE, 1]]
    masked = await open_console(project=project.folder, masks=("page",), data=None)
    assert (await view_of(0, masked))[2:] == ("", "a column of the key is hidden")


async def test_keys_that_are_no_keys(console):
    for key in ("x", "[1]", '{"page": "\' OR 1=1 --"}'):
        assert (await console.get(f"/api/views/pages/row?key={quote(key)}")).status_code == 404
    assert (await console.get('/api/views/pages/row?key={"nope":1}')).status_code in (404, 422)


async def test_a_view_that_does_not_exist(console):
    for path in ("/views/nope", "/views/nope/rows", "/views/nope/comparison", f"/views/{quote(HOSTILE, safe='')}"):
        answer = await console.get(path)
        assert (answer.status_code, "<script>alert" in answer.text) == (404, False)


async def test_without_a_project_the_pages_say_how_to_give_one(open_console):
    console = await open_console()
    assert "headrace console --project DIR" in Elements(await console.page("/views")).text
    assert "headrace console --project DIR" in Elements(await console.page("/sql")).text
    answer = await console.json("/api/views/pages", 404)
    assert (answer["error"], "--project DIR" in answer["advice"]) == ("no_project", True)


async def test_masks_hide_columns_and_refuse_sql(open_console, project):
    console = await open_console(project=project.folder, masks=("clicks",))
    rows = (await console.json("/api/views/pages/rows"))["table"]["rows"]
    assert {row[1] for row in rows} == {"***"}
    found = await console.json(f"/api/sql?sql={quote('SELECT clicks AS c FROM pages')}")
    assert (found["answer"], "--mask" in found["problem"]) == (None, True)
    assert (await console.get("/sql/download?sql=SELECT+1")).status_code == 403
    # Whether there is a row must not tell a hidden value.
    for key in ('{"clicks": 3}', '{"CLICKS": 3}', '{"page": "home", "clicks": 3}'):
        assert (await console.get(f"/views/pages/row?key={quote(key)}")).status_code == 403


async def test_visitors_who_log_in_see_no_views(project):
    from headrace.console.problems import Refused
    from headrace.console.views.project import ViewsProject
    from headrace.runtime.clock import SystemClock

    views = ViewsProject(project.folder, SystemClock(), needs_login=True)
    with pytest.raises(Refused, match="login"):
        await views.ask(lambda opened: opened)
