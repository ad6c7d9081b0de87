"""Browses, searches, follows, sends and copies records by clicks in Chromium, and checks with clients of Kafka."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
import pytest_asyncio

from headrace import AsyncAdmin, AsyncConsumer, AsyncProducer
from headrace.client.types import TopicPartition

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("console-browser")]
_HOSTILE = "<img src=x onerror=alert(1)>"
_RECORDS = 300
_FAST = 5_000


@pytest_asyncio.fixture(loop_scope="session")
async def window(chromium):
    context = await chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(15_000)
    window = await context.new_page()
    window.faults = []
    window.on("console", lambda said: window.faults.append(said.text) if said.type in ("error", "warning") else None)
    window.on("pageerror", lambda error: window.faults.append(str(error)))
    yield window
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def producer(example_broker):
    async with AsyncProducer(bootstrap_servers=example_broker.bootstrap_servers) as producer:
        yield producer


async def new_topic(example_broker, name, partitions=2):
    async with AsyncAdmin(bootstrap_servers=example_broker.bootstrap_servers) as admin:
        if name in await admin.list_topics():
            await admin.delete_topic(name)
        await admin.create_topic(name, num_partitions=partitions)


async def send(producer, topic, count):
    for number in range(count):
        value = {"number": number, "note": _HOSTILE}
        await producer.send(topic, key=b"k%d" % number, value=json.dumps(value).encode(), partition=number % 2)
    await producer.flush()


async def test_records_are_browsed_and_opened(window, console_process, example_broker, producer):
    await new_topic(example_broker, "browsed")
    await send(producer, "browsed", _RECORDS)
    await window.goto(f"{console_process.url}/topics/browsed")
    await window.get_by_role("link", name="Records", exact=True).click()
    await window.get_by_role("link", name="Older").first.click()
    await window.wait_for_url(re.compile("before="))
    await window.get_by_label("Start at").select_option("offset")
    await window.get_by_label("Offset", exact=True).fill("140")
    await window.get_by_label("Partition", exact=True).fill("1")
    await window.get_by_role("button", name="Show").click()
    await window.get_by_role("link", name="1:140").click()
    await window.get_by_role("heading", name="Record 140 of browsed-1").wait_for()
    assert _HOSTILE in await window.locator("pre.record-text").nth(1).inner_text()
    async with window.expect_download() as download:
        await window.get_by_role("link", name="Download the whole value").click()
    path = await (await download.value).path()
    assert json.loads(path.read_text()) == {"number": 281, "note": _HOSTILE}
    assert window.faults == []


async def test_records_are_searched(window, console_process, example_broker, producer):
    await new_topic(example_broker, "searched-by-clicks")
    await send(producer, "searched-by-clicks", _RECORDS)
    await window.goto(f"{console_process.url}/topics/searched-by-clicks")
    await window.get_by_role("link", name="Search records").click()
    await window.get_by_label("Filter").fill("value.number >= 295 and key != 'k297'")
    await window.get_by_role("button", name="Search").click()
    await window.locator("section[data-state=complete]").wait_for()
    assert "4 found in 300 records" in await window.get_by_role("status").inner_text()
    assert await window.locator("table.records tbody tr").count() == 4
    async with window.expect_download() as download:
        await window.get_by_role("link", name="JSON lines").click()
    path = await (await download.value).path()
    assert sorted(json.loads(line)["value"]["number"] for line in path.read_text().splitlines()) == [295, 296, 298, 299]
    assert window.faults == []


async def test_a_tail_loses_nothing(window, console_process, example_broker, producer):
    await new_topic(example_broker, "followed")
    await window.goto(f"{console_process.url}/topics/followed/tail")
    tail = window.locator("#tail")
    await window.locator("#tail[data-open]").wait_for()
    await send(producer, "followed", _FAST)
    await window.locator(f"#tail[data-received='{_FAST}']").wait_for()
    assert await tail.get_attribute("data-dropped") == "0"
    assert await window.locator("#tail-rows tr").count() == 200
    assert _HOSTILE in await window.locator("#tail-rows tr").first.inner_text()
    await window.get_by_role("button", name="Pause").click()
    await send(producer, "followed", 10)
    assert await tail.get_attribute("data-received") == str(_FAST)
    await window.get_by_role("button", name="Continue").click()
    await window.locator(f"#tail[data-received='{_FAST + 10}']").wait_for()
    assert window.faults == []


async def test_a_record_is_sent_and_copied(window, console_process, example_broker):
    await new_topic(example_broker, "sent")
    await new_topic(example_broker, "copied", 1)
    await window.goto(f"{console_process.url}/topics/sent/records")
    await window.get_by_role("link", name="Send a record").click()
    await window.get_by_label("Key", exact=True).fill("k")
    await window.get_by_label("Value", exact=True).fill('{"a": 1}')
    await window.get_by_label("The value is").select_option("json")
    await window.get_by_label("Headers").fill("trace=t1")
    await window.get_by_label("Partition").fill("1")
    await window.get_by_role("button", name="Check").click()
    await window.get_by_role("button", name="Send the record").click()
    await window.get_by_role("heading", name="Record 0 of sent-1").wait_for()
    await window.get_by_role("link", name="Copy to another topic").click()
    await window.get_by_label("To topic").fill("copied")
    await window.get_by_role("button", name="Check").click()
    await window.get_by_role("button", name="Copy the record").click()
    await window.get_by_role("heading", name="Record 0 of copied-0").wait_for()
    async with AsyncConsumer(bootstrap_servers=example_broker.bootstrap_servers) as consumer:
        at = TopicPartition("copied", 0)
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        async with asyncio.timeout(20):
            found = []
            while not found:
                found = await consumer.poll()
    assert [(each.key, each.value, each.headers) for each in found] == [(b"k", b'{"a": 1}', (("trace", b"t1"),))]
    assert window.faults == []
