"""Follows a topic of 5,000 records/s in Chromium, and measures what the page costs and whether a record is lost.

``bench/console.py`` runs it. The broker and the console are processes of their own; Chromium is Debian's, without a
window. The page is the one that visitors open. Its CPU and memory are those of Chromium's process for the page.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from headrace import Admin, AsyncProducer

TOPIC = "console-tail"
RECORDS_PER_SECOND = 5_000
_STEP_SECONDS = 0.02
_PROGRAM = "from headrace.tools.main import main; main()"


class Followed(NamedTuple):
    """The result of one tail.

    :ivar left_out: the records that the page says it has left out.
    """

    sent: int
    received: int
    left_out: int
    page_cores: float
    page_mb: float
    console_cores: float


def follow(address: str, folder: Path, seconds: float) -> Followed | None:
    """Sends and follows records. None if there is no Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        return None
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic(TOPIC, num_partitions=3)
    command = [sys.executable, "-c", _PROGRAM, "console", "--listen", "127.0.0.1:0", "--bootstrap-server", address]
    with subprocess.Popen([*command, "--data", str(folder)], stdout=subprocess.PIPE, text=True) as console:
        try:
            assert console.stdout is not None
            url = f"http://{console.stdout.readline().split()[1]}"
            page = f"{url}/topics/{TOPIC}/tail"
            return asyncio.run(_in_chromium(path, page, address, psutil.Process(console.pid), seconds))
        finally:
            console.terminate()


async def _in_chromium(path: str, url: str, address: str, console: psutil.Process, seconds: float) -> Followed:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        page = await browser.new_page()
        await page.goto(url)
        await page.locator("#tail[data-open]").wait_for()
        renderers = [each for each in psutil.Process().children(recursive=True) if "--type=renderer" in each.cmdline()]
        began, page_began, console_began = time.perf_counter(), _cpu(renderers), _cpu([console])
        sent = await _send(address, seconds)
        elapsed = time.perf_counter() - began
        page_cores, console_cores = (
            (_cpu(renderers) - page_began) / elapsed,
            (_cpu([console]) - console_began) / elapsed,
        )
        page_mb = max(each.memory_info().rss for each in renderers) / 1e6
        tail = page.locator("#tail")
        deadline = time.perf_counter() + 30
        received = left_out = 0
        while received + left_out < sent and time.perf_counter() < deadline:
            await asyncio.sleep(0.2)
            received = int(await tail.get_attribute("data-received") or 0)
            left_out = int(await tail.get_attribute("data-dropped") or 0)
        await browser.close()
        return Followed(sent, received, left_out, page_cores, page_mb, console_cores)


async def _send(address: str, seconds: float) -> int:
    """Sends records at an even rate, and returns how many."""
    sent, began = 0, time.perf_counter()
    async with AsyncProducer(bootstrap_servers=address, linger_ms=5) as producer:
        while (elapsed := time.perf_counter() - began) < seconds:
            while sent < elapsed * RECORDS_PER_SECOND:
                await producer.send(TOPIC, value=b'{"number": %d, "note": "%s"}' % (sent, b"x" * 60))
                sent += 1
            await asyncio.sleep(_STEP_SECONDS)
    return sent


def _cpu(processes: list[psutil.Process]) -> float:
    times = [each.cpu_times() for each in processes]
    return sum(each.user + each.system for each in times)
