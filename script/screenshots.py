"""Writes the screenshots of ``docs/console.md`` from the example of the browser tests."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from console_process import ConsoleProcess
from example_cluster import fill
from playwright.sync_api import sync_playwright
from views_project import ViewsProject

from headrace import Admin, Broker, Producer

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "console"

#: Name of the picture: path of the page, and whether it is dark.
PICTURES = {
    "overview": ("/", False),
    "records": ("/topics/orders/records", False),
    "record": ("/topics/visits/records/0/7", False),
    "view": ("/views/pages", True),
}
_PAGES = ("about", "home", "prices")
_VISITS = 30
_SAMPLED_SECONDS = 40


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with Broker() as broker, TemporaryDirectory(prefix="headrace-screenshots-") as folder:
        fill(broker.bootstrap_servers)
        project = example_project(Path(folder), broker.bootstrap_servers)
        options = ("--project", folder)
        with ConsoleProcess(broker.bootstrap_servers, Path(folder), *options) as console:
            send_for_a_while(broker.bootstrap_servers)  # The charts need samples.
            take(console.url)
        project.close()


def example_project(folder: Path, bootstrap: str) -> ViewsProject:
    """The view ``pages`` of the topic ``visits``, with a dead letter, and a second version that has caught up."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        for topic in ("visits", "dead"):
            admin.create_topic(topic, num_partitions=1)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(_VISITS):
            page = _PAGES[number % len(_PAGES)]
            producer.send("visits", key=b"visitor-%d" % number, value=json.dumps({"page": page, "ms": 40}).encode())
        where = {"view": "pages", "topic": "visits", "partition": "0", "offset": "3"}
        notes = {"reason": "text follows the JSON document: at character 9", **where}
        headers = {f"headrace.{name}": text.encode() for name, text in notes.items()}
        producer.send("dead", key=b"visitor-3", value=b'{"a": 1}}', headers=headers)
    project = ViewsProject(folder, bootstrap)
    query = "SELECT page, count(*) AS clicks\nFROM events\nGROUP BY page"
    rows = dict.fromkeys(_PAGES, _VISITS // len(_PAGES))
    project.serve(project.add(rows, query=query, topic="visits", end=_VISITS))
    project.add(rows, query=query.replace("GROUP", "WHERE ms < 60000\nGROUP"), topic="visits", end=_VISITS)
    return project


def send_for_a_while(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(_SAMPLED_SECONDS * 10):
            producer.send("orders", key=b"customer-%d" % (number % 5), value=b'{"number": %d}' % number)
            time.sleep(0.1)


def take(url: str) -> None:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for name, (page, is_dark) in PICTURES.items():
            scheme = "dark" if is_dark else "light"
            window = browser.new_page(viewport={"width": 1120, "height": 760}, color_scheme=scheme)
            window.goto(url + page, wait_until="load")
            window.screenshot(path=FOLDER / f"{name}.png", full_page=name == "record")
            window.close()
        browser.close()


if __name__ == "__main__":
    main()
