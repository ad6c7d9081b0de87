"""Runs the Python of the guide to reading views: headrace.views against a server, and a project with Spark."""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace import Broker, Producer
from headrace.pipeline import Project
from headrace.pipeline.serving.http.requests import MAX_LIMIT, MAX_TIMEOUT_MS
from headrace.pipeline.serving.http.server import HttpServer
from headrace.pipeline.serving.queries.large_answers import PAGES_KEPT_MS
from headrace.pipeline.serving.queries.spool import MAX_BYTES
from headrace.tools.views.command import main

GUIDE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ADDRESS = "http://127.0.0.1:8090"
#: Long, because on a busy machine Spark takes minutes for what otherwise takes seconds.
_TIMEOUT_S = 500
_CONF = '[spark]\nmaster = "local[2]"\nconf = {"spark.sql.shuffle.partitions" = 2}\n'


def run(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(2 * _TIMEOUT_S)
@pytest.mark.xdist_group("views-0")
def test_the_python_of_the_guide(tmp_path):
    reading, managing = _BLOCK.findall(GUIDE)
    with Broker() as broker:
        arguments = ["init", str(tmp_path / "shop"), "--bootstrap-server", broker.bootstrap_servers, "--create-topics"]
        assert main(arguments) == 0
        settings = tmp_path / "shop" / "headrace.toml"
        settings.write_text(settings.read_text().partition("[spark]")[0] + _CONF)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for page in ("home", "home", "cart"):
                value = {"user": "ada", "page": page, "ms": 7, "at": "2026-11-16 08:30:00"}
                producer.send("clicks", json.dumps(value).encode()).result()
        said = run(managing, tmp_path)
    assert "pages v1 stopped (serves), 0 records behind" in said
    assert "pages (lambda) is kept up to date by" in said
    assert re.search(r"pages\n0 +2\n$", said), "two pages"

    shown = Project(tmp_path / "shop").status()._repr_html_()
    assert "<td>pages</td><td>v1</td><td>stopped (serves)</td>" in shown
    server = HttpServer(f"sqlite:///{tmp_path}/shop/headrace-views.db")
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert _ADDRESS in reading
        said = run(reading.replace(_ADDRESS, f"http://127.0.0.1:{server.port}"), tmp_path)
    finally:
        server.stop()
        thread.join(20)
    assert {"home 2", "cart 1"} <= set(said.splitlines())
    assert "{'clicks': {0: " in said


def test_the_limits_of_the_guide_are_those_of_the_code():
    for text in (f"up to {MAX_LIMIT:,}", f"up to {MAX_TIMEOUT_MS // 1000} s", f"{MAX_BYTES >> 30} GiB"):
        assert text in GUIDE
    assert PAGES_KEPT_MS == 600_000
    assert "for ten minutes" in GUIDE
