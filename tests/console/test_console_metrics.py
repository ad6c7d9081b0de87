"""``/metrics``: requests by path and status, changes by outcome, and what there is now."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from headrace.console.metrics import FAMILIES, full_name


async def scraped(console) -> dict[tuple[str, ...], float]:
    answer = await console.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


async def test_requests_changes_and_sessions_are_counted(console):
    await console.page("/topics")
    await console.get("/topics/missing-here")
    await console.call("create-topic", topic="counted", partitions=1)
    await console.call("delete-topic", topic="missing-here")
    await console.services.history.sampler.sample()
    found = await scraped(console)
    assert found["headrace_console_requests_total", "/topics", "200"] == 1
    assert found["headrace_console_requests_total", "/topics/{topic}", "404"] == 1
    assert 0 < found["headrace_console_request_seconds_total", "/topics"] < 30
    assert found["headrace_console_changes_total", "create-topic", "done"] == 1
    assert found["headrace_console_changes_total", "delete-topic", "failed"] == 1
    assert found["headrace_console_sessions",] == 1
    assert (found["headrace_console_live_pages",], found["headrace_console_searches",]) == (0, 0)
    assert 0 <= found["headrace_console_sample_age_seconds",] < 30
    assert {name for name, *_ in found} == {full_name(family) for family in FAMILIES}


async def test_no_name_of_the_cluster_is_in_them_and_no_session_begins(open_console):
    console = await open_console(needs_login=True, clients={"bootstrap.servers": "127.0.0.1:1"})
    await console.get("/topics/secret-name")
    answer = await console.get("/metrics")
    assert (answer.status_code, "secret-name" in answer.text, "set-cookie" in answer.headers) == (200, False, False)
