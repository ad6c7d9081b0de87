"""Changes topics, groups, ACLs, users, transactions and views by clicks in Chromium, and checks by a Kafka client."""

from __future__ import annotations

import pytest
import pytest_asyncio
from test_each_page import window

from headrace import AsyncAdmin, AsyncProducer
from headrace.client.admin.types import ConfigResource
from headrace.client.types import TopicPartition

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("console-browser")]
__all__ = ["window"]


@pytest_asyncio.fixture(loop_scope="session")
async def admin(example_broker):
    async with AsyncAdmin(bootstrap_servers=example_broker.bootstrap_servers) as admin:
        yield admin


async def confirm(window, button: str, command: str, typed: str = "") -> None:
    """Goes from the form over the preview to the change, and waits for the page that says so."""
    await window.get_by_role("button", name="Check").click()
    assert command in await window.locator(".command").first.inner_text()
    if typed:
        await window.get_by_label(f"Type {typed} to confirm").fill(typed)
    await window.get_by_role("button", name=button).click()
    await window.locator("p.message").wait_for()


async def send(example_broker, topic: str, count: int) -> None:
    async with AsyncProducer(bootstrap_servers=example_broker.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, value=b"%d" % number, partition=0)


async def test_a_topic_is_grown_set_and_emptied(window, console_process, example_broker, admin):
    await admin.create_topic("changed", num_partitions=1)
    await send(example_broker, "changed", 10)
    page = f"{console_process.url}/topics/changed"
    await window.goto(page)
    await window.get_by_role("link", name="Add partitions").click()
    await window.get_by_label("New number of partitions").fill("3")
    await confirm(window, "Add the partitions", "--alter --topic changed --partitions 3")
    assert len((await admin.describe_topic("changed")).partitions) == 3

    await window.goto(page)
    await window.get_by_role("link", name="Change retention.ms", exact=True).click()
    await window.get_by_label("Value").fill("12345")
    await confirm(window, "Change the setting", "retention.ms=12345")
    assert await _setting(admin, "changed", "retention.ms") == "12345"
    await window.goto(page)
    await window.get_by_role("link", name="Restore the default of retention.ms").click()
    await confirm(window, "Change the setting", "retention.ms")
    assert await _setting(admin, "changed", "retention.ms") != "12345"

    await window.goto(page)
    await window.get_by_role("link", name="Delete records").click()
    await window.get_by_label("Before offset").fill("4")
    await window.get_by_label("Partition", exact=True).fill("0")
    await confirm(window, "Delete the records", "delete-records", typed="changed")
    at = TopicPartition("changed", 0)
    assert (await admin.list_offsets({at: "earliest"})).value(at).offset == 4
    assert window.faults == []


async def _setting(admin: AsyncAdmin, topic: str, name: str) -> str | None:
    resource = ConfigResource("topic", topic)
    return (await admin.describe_configs([resource])).value(resource)[name].value


async def test_a_group_is_reset_and_deleted(window, console_process, example_broker, admin):
    await admin.create_topic("counted", num_partitions=1)
    await send(example_broker, "counted", 5)
    at = TopicPartition("counted", 0)
    await admin.alter_group_offsets("clicked", {at: 3})
    page = f"{console_process.url}/groups/clicked"
    for way, value, expected in (("earliest", "", 0), ("shift", "2", 2), ("latest", "", 5), ("offset", "4", 4)):
        await window.goto(page)
        await window.get_by_role("link", name="Reset offsets").click()
        await window.get_by_label("Reset to").select_option(way)
        await window.get_by_label("Value").fill(value)
        await confirm(window, "Reset the offsets", "--reset-offsets")
        assert (await admin.list_group_offsets("clicked"))[at].offset == expected, way
    await window.goto(page)
    await window.get_by_role("link", name="Delete offsets of a topic").click()
    await window.get_by_label("Topic").fill("counted")
    await confirm(window, "Delete the offsets", "--delete-offsets", typed="counted")
    assert at not in await admin.list_group_offsets("clicked")
    await admin.alter_group_offsets("clicked", {at: 1})
    await window.goto(page)
    await window.get_by_role("link", name="Delete the group").click()
    await confirm(window, "Delete the group", "--delete --group clicked", typed="clicked")
    assert "clicked" not in [each.group_id for each in await admin.list_groups()]
    assert window.faults == []


async def test_a_rule_is_added_and_removed(window, console_process, admin):
    await window.goto(f"{console_process.url}/security")
    await window.get_by_role("link", name="Add an ACL").click()
    await window.get_by_label("Principal").fill("User:ann")
    await window.get_by_label("Operation").select_option("Write")
    await window.get_by_label("Name of the resource").fill("orders")
    await confirm(window, "Add the ACL", "--allow-principal User:ann")
    (rule,) = await admin.describe_acls()
    assert (rule.entry.principal, rule.entry.operation.title, rule.pattern.name) == ("User:ann", "Write", "orders")
    await window.goto(f"{console_process.url}/security")
    await window.locator("a[href*='remove-acl']").click()
    await confirm(window, "Remove the ACL", "--remove")
    assert await admin.describe_acls() == []
    assert window.faults == []


async def test_a_user_gets_a_password_and_is_deleted(window, console_process, admin):
    await window.goto(f"{console_process.url}/security/users")
    await window.get_by_role("link", name="Set a password").click()
    await window.get_by_label("User").fill("ann")
    await window.get_by_label("Password").fill("clicked-secret")
    await confirm(window, "Set the password", "PASSWORD")
    assert "clicked-secret" not in await window.content()
    assert list(await admin.describe_user_scram_credentials()) == ["ann"]
    await window.goto(f"{console_process.url}/security/users")
    await window.get_by_role("link", name="Delete SCRAM-SHA-512 of ann").click()
    await confirm(window, "Delete the user", "ann", typed="ann")
    assert list(await admin.describe_user_scram_credentials()) == []
    assert window.faults == []


async def test_an_open_transaction_is_terminated(window, console_process, example_broker, admin):
    await admin.create_topic("paid-by-clicks", num_partitions=1)
    options = {"bootstrap.servers": example_broker.bootstrap_servers, "transactional.id": "stuck"}
    async with AsyncProducer(options) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("paid-by-clicks", value=b"x", partition=0)
        await producer.flush()
        await window.goto(f"{console_process.url}/cluster/transactions")
        await window.get_by_role("link", name="Terminate the transaction of stuck").click()
        await confirm(window, "Terminate the transaction", "stuck", typed="stuck")
        assert (await admin.describe_transactions(["stuck"])).value("stuck").state != "Ongoing"
    assert window.faults == []


async def test_a_dead_letter_is_sent_again_and_a_view_is_dropped(
    window, console_process, example_broker, example_project, admin
):
    for topic in ("clicks", "dead"):
        if topic not in await admin.list_topics():
            await admin.create_topic(topic, num_partitions=1)
    query = "SELECT page, count(*) AS clicks FROM events GROUP BY page"
    example_project.serve(example_project.add({"home": 1}, query=query, view="unused"), "unused")
    notes = {"reason": "not JSON", "view": "unused", "topic": "clicks", "partition": "0", "offset": "0"}
    headers = {f"headrace.{name}": text.encode() for name, text in notes.items()}
    async with AsyncProducer(bootstrap_servers=example_broker.bootstrap_servers) as producer:
        await producer.send("dead", value=b"{bad", headers=headers)
    at = TopicPartition("clicks", 0)
    before = (await admin.list_offsets({at: "latest"})).value(at).offset
    await window.goto(f"{console_process.url}/views/unused")
    await window.get_by_role("link", name="Send again").click()
    await window.get_by_label("Value").fill('{"page": "home"}')
    await confirm(window, "Send it again", "--topic dead")
    await window.get_by_role("heading", name=f"Record {before} of clicks-0").wait_for()
    await window.goto(f"{console_process.url}/views/unused")
    await window.get_by_role("link", name="Drop the view").click()
    await confirm(window, "Drop it", "headrace views drop unused", typed="unused")
    assert example_project.serving("unused") is None
    assert window.faults == []
