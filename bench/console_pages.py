"""Measures the list of 10,000 topics in Chromium, and the CPU of a console with one idle page open.

``bench/console.py`` runs it. The broker and the console are processes of their own, one pair per measurement; Chromium
is Debian's, without a window.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import servers

from headrace import Admin
from headrace.client.admin.types import NewTopic

TOPICS = 10_000
PARTITIONS = 1_000
_TOPICS_AT_ONCE = 500
_PROGRAM = "from headrace.tools.main import main; main()"
_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_SENT = "() => performance.getEntriesByType('navigation')[0].transferSize"


class Pages(NamedTuple):
    """The results.

    :ivar paint_ms: from the request until the first paint with content, of each visit.
    :ivar page_bytes: the page with its headers, as it was sent.
    :ivar idle_cores: the CPU of the console, by the page that is open.
    """

    paint_ms: list[float]
    page_bytes: int
    idle_cores: dict[str, float]
    load: float


def measure(visits: int, idle_seconds: float) -> Pages | None:
    """None if there is no Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        return None
    with _console(TOPICS, 1) as (url, _):
        paint_ms, page_bytes = asyncio.run(_visits(path, f"{url}/topics", visits))
    with _console(1, PARTITIONS) as (url, console):
        idle = {page: asyncio.run(_idle(path, url + page, console, idle_seconds)) for page in ("/", "/topics")}
    return Pages(paint_ms, page_bytes, idle, os.getloadavg()[0])


@contextmanager
def _console(topics: int, partitions: int) -> Iterator[tuple[str, psutil.Process]]:
    """A console on a broker with topics: its address and its process."""
    with tempfile.TemporaryDirectory() as folder, servers.headrace(Path(folder)) as server:
        with Admin(bootstrap_servers=server.address) as admin:
            names = [f"topic-{number:05}" for number in range(topics)]
            for begin in range(0, topics, _TOPICS_AT_ONCE):
                some = names[begin : begin + _TOPICS_AT_ONCE]
                admin.create_topics([NewTopic(name, num_partitions=partitions) for name in some], timeout_ms=60_000)
        command = [sys.executable, "-c", _PROGRAM, "console", "--listen", "127.0.0.1:0"]
        command += ["--bootstrap-server", server.address, "--data", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield f"http://{process.stdout.readline().split()[1]}", psutil.Process(process.pid)
            finally:
                process.terminate()


@contextmanager
def _closing_time(process: psutil.Process) -> Iterator[list[float]]:
    """Puts the cores that a process has used meanwhile into a list."""
    used: list[float] = []
    began, before = time.perf_counter(), process.cpu_times()
    yield used
    after = process.cpu_times()
    spent = after.user + after.system - before.user - before.system
    used.append(spent / (time.perf_counter() - began))


async def _visits(path: str, url: str, visits: int) -> tuple[list[float], int]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        paint_ms, page_bytes = [], 0
        for _ in range(visits):
            page = await browser.new_page()
            await page.goto(url)
            await page.wait_for_function(_PAINT)
            assert await page.locator("tbody tr").count() == 100, "the list has other rows"
            paint_ms.append(float(await page.evaluate(_PAINT)))
            page_bytes = int(await page.evaluate(_SENT))
            await page.close()
        await browser.close()
        return paint_ms, page_bytes


async def _idle(path: str, url: str, console: psutil.Process, seconds: float) -> float:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = await browser.new_page()
        await page.goto(url)
        await page.locator("#live[data-updated]").wait_for(state="attached")
        with _closing_time(console) as used:
            await asyncio.sleep(seconds)
        await browser.close()
        return used[0]


def pages_text(pages: Pages | None) -> str:
    """The results, as sentences."""
    if pages is None:
        return "There is no Chromium, so no page was opened."
    ordered = sorted(pages.paint_ms)
    idle = ", ".join(f"{cores:.1%} with `{page}` open" for page, cores in pages.idle_cores.items())
    return (
        f"The list of {TOPICS:,} topics in Chromium: first paint after {ordered[len(ordered) // 2]:,.0f} ms (median of "
        f"{len(ordered)} visits, {ordered[0]:,.0f} to {ordered[-1]:,.0f} ms), {pages.page_bytes / 1e3:,.0f} KB. The "
        f"console on {PARTITIONS:,} partitions, with one idle page: {idle}, of a core. The load was {pages.load:.1f}."
    )


if __name__ == "__main__":
    print(pages_text(measure(5, 30.0)))
