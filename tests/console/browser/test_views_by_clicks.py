"""Switches a view to another version and back by clicks in Chromium, and asks for its rows."""

from __future__ import annotations

import pytest
from test_each_page import window

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("console-browser")]
__all__ = ["window"]


async def test_readers_are_switched_and_back_by_clicks(window, console_process, example_project):
    await window.goto(f"{console_process.url}/views")
    await window.get_by_role("row", name="pages").get_by_role("link", name="pages").click()
    await window.get_by_role("link", name="Switch to v2").click()
    await window.get_by_role("button", name="Check").click()
    assert "headrace views switch pages 2 --project" in await window.locator(".command").inner_text()
    await window.get_by_role("button", name="Switch the readers").click()
    await window.get_by_text("pages v2 serves from now on.").wait_for()
    assert example_project.serving() == 2
    await window.get_by_role("link", name="Roll back").click()
    await window.get_by_role("button", name="Check").click()
    await window.get_by_role("button", name="Roll back").click()
    await window.get_by_text("pages v1 serves from now on.").wait_for()
    assert example_project.serving() == 1
    assert window.faults == []


async def test_a_switch_by_somebody_else_is_seen_in_the_open_page(window, console_process, example_project):
    await window.goto(f"{console_process.url}/views/pages")
    await window.locator("#live[data-updated]").wait_for(state="attached")
    await window.evaluate("document.body.dataset.opened = 'once'")
    assert await window.locator("section.version.serves h3").inner_text() == "v1 serving serves"
    example_project.serve(2)
    await window.locator("section.version.serves h3", has_text="v2").wait_for()
    example_project.serve(1)
    await window.locator("section.version.serves h3", has_text="v1").wait_for()
    assert await window.locator("body").get_attribute("data-opened") == "once", "the page was loaded again"
    assert window.faults == []


async def test_a_statement_is_answered(window, console_process, example_project):
    await window.goto(f"{console_process.url}/sql")
    await window.get_by_label("Statement that reads").fill("SELECT page, clicks FROM pages ORDER BY page")
    await window.get_by_role("button", name="Run").click()
    await window.get_by_role("region", name="Answer").get_by_text("about").wait_for()
    assert await window.locator(".chart .bar").count() == 3
    assert window.faults == []


async def test_a_statement_is_completed_by_keys(window, console_process, example_project):
    await window.goto(f"{console_process.url}/sql")
    box, shown = window.get_by_label("Statement that reads"), window.get_by_role("listbox", name="Completions")

    async def words():
        return [(await each.inner_text()).split() for each in await shown.get_by_role("option").all()]

    await box.press_sequentially("sel")
    assert await words() == [["SELECT", "keyword"]]
    await window.keyboard.press("Tab")
    await box.press_sequentially(" p.")
    assert await shown.is_hidden(), "p is no view yet"
    await box.fill("SELECT p. FROM pages p")
    await box.evaluate("box => box.setSelectionRange(9, 9)")
    await window.keyboard.press("Control+Space")
    assert await words() == [["page", "pages"], ["clicks", "pages"]]
    assert await box.get_attribute("aria-activedescendant") is None
    await window.keyboard.press("ArrowDown")
    await window.keyboard.press("ArrowDown")
    assert await box.get_attribute("aria-activedescendant") == "completion-1"
    await window.keyboard.press("Enter")
    assert await box.input_value() == "SELECT p.clicks FROM pages p"
    await box.fill("SELECT clicks FROM ")
    await box.press_sequentially("PA")
    assert await words() == [["pages", "view"]]
    await window.keyboard.press("Escape")
    assert await shown.is_hidden()
    await window.keyboard.press("Control+Space")
    await shown.get_by_role("option").first.click()
    assert await box.input_value() == "SELECT clicks FROM pages"
    await box.press_sequentially(" WHERE page = 'cl")
    assert await shown.is_hidden(), "nothing completes inside of a text"
    await box.press_sequentially("' OR")
    await window.keyboard.press("Enter")
    assert (await box.input_value()).endswith("' OR\n"), "Enter takes nothing that was not chosen"
    await window.keyboard.press("Tab")
    assert await box.evaluate("box => document.activeElement !== box"), "Tab leaves the box"
    assert window.faults == []
