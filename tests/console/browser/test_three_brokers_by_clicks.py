"""Opens each page once on a cluster of three broker processes, and moves partitions by clicks."""

from __future__ import annotations

import asyncio

import pytest
from console_process import ConsoleProcess
from example_cluster import VALUES, fill
from test_changes_by_clicks import confirm
from test_each_page import window
from views_project import pages_project

from headrace import AsyncAdmin
from headrace.client.admin.types import NewTopic
from headrace.console.pages.table import PAGES
from headrace.console.rendering import link
from headrace.testing.cluster_process import LocalClusterProcess

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("console-browser")]
__all__ = ["window"]


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory):
    with LocalClusterProcess(tmp_path_factory.mktemp("brokers")) as cluster:
        fill(cluster.address)
        yield cluster.address


@pytest.fixture(scope="module")
def wide_console(three_brokers, tmp_path_factory):
    project = pages_project(tmp_path_factory.mktemp("project"), three_brokers)
    folder, options = tmp_path_factory.mktemp("console"), ("--project", str(project.folder))
    with ConsoleProcess(three_brokers, folder, *options) as process:
        yield process
    project.close()


async def test_each_page_opens(window, wide_console):
    for page in PAGES:
        address = link(page.path, **{name: VALUES[name] for name in page.path_parameters})
        answer = await window.goto(wide_console.url + address, wait_until="load")
        assert answer.status == 200, await answer.text()
        assert window.faults == [], address


async def test_partitions_move_and_leaders_are_elected(window, wide_console, three_brokers):
    async with AsyncAdmin(bootstrap_servers=three_brokers) as admin:
        first, second, third = (node.id for node in (await admin.describe_cluster()).brokers)
        await admin.create_topics([NewTopic("moved", assignments={0: [first, second]})])
        await window.goto(f"{wide_console.url}/cluster")
        await window.get_by_role("link", name="Plan a move").click()
        await window.get_by_label("Topics").fill("moved")
        await window.get_by_label("Brokers").fill(f"{second},{third}")
        await confirm(window, "Move the partitions", "reassign-partitions")
        async with asyncio.timeout(60):
            while sorted((await admin.describe_topic("moved")).partitions[0].replicas) != [second, third]:
                pass
        await window.goto(f"{wide_console.url}/cluster")
        await window.get_by_role("link", name="Elect preferred leaders").click()
        await confirm(window, "Elect the leaders", "leader-election")
        async with asyncio.timeout(60):
            while True:
                partition = (await admin.describe_topic("moved")).partitions[0]
                if partition.leader_id == partition.replicas[0]:
                    break
    assert window.faults == []
