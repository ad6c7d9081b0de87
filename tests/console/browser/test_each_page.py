"""Opens each page and the form of each action in Chromium: nothing fails, and everybody can use it.

The pages and actions are those of the registries, so a new page is tested as soon as it is registered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import pytest_asyncio
from example_cluster import VALUES

from headrace import AsyncAdmin
from headrace.console.actions.table import ACTIONS
from headrace.console.pages.table import PAGES
from headrace.console.rendering import link

#: One browser, and so one event loop, for all tests.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("console-browser")]
_PHONE = {"width": 360, "height": 740}
_DESK = {"width": 1280, "height": 900}
#: A page that is open is looked at in each of them: to open it once more would take most of the time of these tests.
_LOOKS = (("light", _DESK), ("dark", _DESK), ("dark", _PHONE))

#: Checks in the page itself: what a screen reader and a keyboard need.
_FAULTS = """
() => {
  const faults = [];
  const visible = (element) => element.getClientRects().length > 0;
  for (const input of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
    if (!input.labels?.length && !input.getAttribute("aria-label")) faults.push("no label: " + input.outerHTML);
  }
  for (const each of document.querySelectorAll("a[href], button")) {
    const name = each.textContent.trim() || each.getAttribute("aria-label");
    if (visible(each) && !name) faults.push("no name: " + each.outerHTML);
  }
  for (const image of document.querySelectorAll("svg")) {
    if (!image.getAttribute("aria-label") && image.getAttribute("aria-hidden") !== "true")
      faults.push("no name: " + image.outerHTML.slice(0, 80));
  }
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push("twice: #" + id);
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((each) => Number(each.tagName[1]));
  levels.forEach((level, at) => { if (at && level > levels[at - 1] + 1) faults.push("a heading is left out"); });
  if (document.documentElement.scrollWidth > innerWidth + 1)
    faults.push(`the page is ${document.documentElement.scrollWidth} px wide, the window ${innerWidth}`);

  const luminance = (colour) => {
    const [r, g, b] = colour.map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parts(getComputedStyle(each).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.99) return colour.slice(0, 3);
    }
    return parts(getComputedStyle(document.documentElement).colorScheme.includes("dark") ? "0 0 0" : "255 255 255");
  };
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!hasText || !visible(element) || element.closest(":disabled") || element.closest("svg")) continue;
    const [light, dark] = [luminance(parts(getComputedStyle(element).color).slice(0, 3)), luminance(ground(element))]
      .sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${element.outerHTML.slice(0, 80)}`);
  }
  return faults;
}
"""


def _addresses() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        missing = set(page.path_parameters) - VALUES.keys()
        assert not missing, f"add a value for {missing} to VALUES in example_cluster.py, and create it there"
        yield page.path, link(page.path, **{name: VALUES[name] for name in page.path_parameters})
    for action in ACTIONS:
        yield action.path, action.path


@pytest_asyncio.fixture(loop_scope="session")
async def window(chromium):
    """A window of Chromium whose console messages are in ``window.faults``."""
    window = await chromium.new_page(color_scheme="light", viewport=_DESK, reduced_motion="reduce")
    window.set_default_timeout(15_000)
    window.faults = []
    window.on("console", lambda message: _note(window.faults, message))
    window.on("pageerror", lambda error: window.faults.append(f"error: {error}"))
    window.on("requestfailed", lambda failed: _note_failed(window.faults, failed))
    yield window
    await window.context.close()


def _note(faults: list[str], message) -> None:
    if message.type in ("error", "warning"):
        faults.append(f"{message.type}: {message.text}")


def _note_failed(faults: list[str], failed) -> None:
    # The browser gives up what it still loads for a page when the visitor leaves the page.
    if "ERR_ABORTED" not in (failed.failure or ""):
        faults.append(f"failed: {failed.url}: {failed.failure}")


@pytest.mark.parametrize("address", [each[1] for each in _addresses()], ids=[each[0] for each in _addresses()])
async def test_a_page_opens_without_a_fault(window, console_process, address):
    answer = await window.goto(console_process.url + address, wait_until="load")
    assert answer.status == 200, await answer.text()
    if await window.locator("#live[data-live]").count():
        await window.locator("#live[data-updated]").wait_for(state="attached")
        assert await window.locator("#live-problem").is_hidden()
    for scheme, size in _LOOKS:
        await window.emulate_media(color_scheme=scheme)
        await window.set_viewport_size(size)
        assert await window.evaluate(_FAULTS) == [], (scheme, size)
    assert window.faults == []


async def test_a_topic_is_created_and_deleted_by_clicks(window, console_process, example_broker):
    await window.goto(console_process.url + "/topics")
    await window.get_by_role("link", name="Create a topic").click()
    await window.get_by_label("Name").fill("by-clicks")
    await window.get_by_label("Partitions").fill("2")
    await window.get_by_role("button", name="Check").click()
    assert "--create --topic by-clicks --partitions 2" in await window.locator(".command").inner_text()
    await window.get_by_role("button", name="Create the topic").click()
    await window.get_by_role("heading", name="Topic by-clicks").wait_for()
    async with AsyncAdmin(bootstrap_servers=example_broker.bootstrap_servers) as admin:
        assert len((await admin.describe_topic("by-clicks")).partitions) == 2
        await window.get_by_role("link", name="Delete the topic").click()
        await window.get_by_role("button", name="Check").click()
        await window.get_by_label("Type by-clicks to confirm").fill("by-clicks")
        await window.get_by_role("button", name="Delete the topic").click()
        await window.wait_for_url(re.compile("/topics$"))
        assert "by-clicks" not in await admin.list_topics()
    assert window.faults == []


async def test_keys_filter_choose_and_open(window, console_process):
    await window.goto(console_process.url + "/topics")
    await window.keyboard.press("/")
    await window.keyboard.type("order")
    await window.keyboard.press("Enter")
    await window.wait_for_url(re.compile("q=order"))
    await window.keyboard.press("j")
    await window.keyboard.press("Enter")
    await window.wait_for_url(re.compile("/topics/orders$"))
    await window.keyboard.press("g")
    await window.keyboard.press("o")
    await window.wait_for_url(re.compile("/$"))
    assert window.faults == []
