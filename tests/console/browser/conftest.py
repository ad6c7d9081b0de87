"""A console as a process on a real broker, and Debian's Chromium that opens its pages.

Without Chromium the tests are skipped, except in CI (the environment has ``CI``), where they fail.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from headrace import Broker

if TYPE_CHECKING:
    from playwright.async_api import Browser

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "views"))

from console_process import ConsoleProcess
from example_cluster import fill
from views_project import ViewsProject, pages_project


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        message = "there is no Chromium: run script/test, or apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        # Root, as in containers, cannot use the sandbox. The pages are our own.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def example_broker() -> Iterator[Broker]:
    """A broker with ACLs, and the topics, records and groups of ``example_cluster.py``. Everybody may do everything."""
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(config=config) as broker:
        fill(broker.bootstrap_servers)
        yield broker


@pytest.fixture(scope="session")
def example_project(example_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewsProject]:
    """A project with the view ``pages`` of two versions."""
    project = pages_project(tmp_path_factory.mktemp("project"), example_broker.bootstrap_servers)
    yield project
    project.close()


@pytest.fixture(scope="session")
def console_process(
    example_broker: Broker, example_project: ViewsProject, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    folder, options = tmp_path_factory.mktemp("console"), ("--project", str(example_project.folder))
    with ConsoleProcess(example_broker.bootstrap_servers, folder, *options) as process:
        yield process
