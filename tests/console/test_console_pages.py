"""The pages about topics and the overview: what they read from a real broker, as HTML and as JSON."""

from __future__ import annotations

import pytest
from console_harness import Elements

from headrace import Admin, Producer


@pytest.fixture(scope="module")
def orders(broker) -> str:
    """A topic with three partitions, records in one of them, and a setting of its own."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", num_partitions=3, configs={"max.message.bytes": 60_000, "retention.ms": 5_000})
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send("orders", value=b"%d" % number, partition=1)
    return "orders"


async def test_overview_shows_brokers_and_health(console, orders, broker):
    found = await console.json("/api/overview")
    (row,) = found["brokers"]
    assert f"{row['host']}:{row['port']}" == broker.bootstrap_servers
    assert row["is_controller"]
    assert row["disks"][0]["used_bytes"] > 0
    assert found["health"]["offline"] == {"count": 0, "partitions": []}
    assert broker.bootstrap_servers in Elements(await console.page("/")).text


async def test_topics_are_listed_sorted_filtered_and_cut(console, broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("list-a", num_partitions=1)
        admin.create_topic("list-b", num_partitions=4)
        admin.create_topic("list-c", num_partitions=2)
    listed = await console.json("/api/topics?q=LIST-&sort=partitions&order=desc")
    assert [row["name"] for row in listed["topics"]["rows"]] == ["list-b", "list-c", "list-a"]
    second = (await console.json("/api/topics?q=list-&rows=2&page=2"))["topics"]
    assert ([row["name"] for row in second["rows"]], second["pages"], second["matching"]) == (["list-c"], 2, 3)
    page = Elements(await console.page("/topics?q=list-&rows=2"))
    links = [each["href"] for each in page.named("a")]
    assert "/topics/list-a" in links
    assert any(link.startswith("/topics?") and "page=2" in link for link in links)


async def test_a_topic_shows_offsets_and_where_settings_come_from(console, orders):
    found = await console.json("/api/topics/orders")
    assert [(row["first_offset"], row["end_offset"]) for row in found["partitions"]] == [(0, 0), (0, 5), (0, 0)]
    assert found["partitions"][1]["size_bytes"] > 0
    settings = {row["name"]: row for row in found["settings"]}
    assert settings["max.message.bytes"]["value"] == "60000"
    assert settings["max.message.bytes"]["default"] == "1048588"
    assert settings["max.message.bytes"]["is_own"]
    assert settings["retention.ms"]["default"] == "604800000"
    assert not settings["cleanup.policy"]["is_own"]
    assert "retention.ms" in Elements(await console.page("/topics/orders")).text


async def test_a_missing_topic_is_a_clear_error(console):
    answer = await console.json("/api/topics/missing", 404)
    assert answer["error"] == "unknown_topic_or_partition"
    page = await console.get("/topics/missing")
    assert (page.status_code, "unknown_topic_or_partition" in page.text) == (404, True)


@pytest.mark.parametrize("query", ["sort=evil", "rows=0", "rows=501", "page=-1", "no=1", "q=a&q=b", "q=%ff"])
async def test_wrong_parameters_are_refused(console, query):
    assert (await console.get(f"/api/topics?{query}")).status_code in (400, 422)


async def test_a_cluster_that_is_away_is_a_page_of_its_own(open_console):
    console = await open_console(clients={"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 300})
    answer = await console.json("/api/topics", 503)
    assert answer["error"] == "cluster_away"
    assert (await console.get("/")).status_code == 503


async def test_openapi_describes_each_page_and_action(console):
    from headrace.console.actions.table import ACTIONS
    from headrace.console.pages.table import PAGES

    document = await console.json("/api/openapi.json")
    assert {page.api_path for page in PAGES} | {action.api_path for action in ACTIONS} < set(document["paths"])
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(names) == len(set(names))
    row = document["components"]["schemas"]["TopicRow"]
    assert row["properties"]["partitions"] == {"type": "integer"}
