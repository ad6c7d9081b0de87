"""Runs the Python example of docs/registry.md, and compares the guide's facts with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from headrace import Broker
from headrace.registry.compatibility.levels import LEVELS
from headrace.registry.http.calls import MAX_BODY_BYTES
from headrace.registry.http.routes import ROUTES
from headrace.registry.schemas import MAX_REFERENCES, MAX_SCHEMA_CHARACTERS
from headrace.testing.registry_process import RegistryProcess

TEXT = (Path(__file__).parents[2] / "docs" / "registry.md").read_text(encoding="utf-8")
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_runs(tmp_path: Path) -> None:
    (example,) = _PYTHON.findall(TEXT)
    with (
        Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker,
        RegistryProcess(broker.bootstrap_servers, tmp_path) as registry,
    ):
        program = example.replace("127.0.0.1:8081", registry.address).replace(
            "127.0.0.1:9092", broker.bootstrap_servers
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["[1]", "{'id': 1, 'amount': 20}"], "")


def test_the_guide_names_every_first_part_of_a_path_and_every_level() -> None:
    parts = {f"/{route.path.split('/')[1]}" for route in ROUTES} - {"/", "/v1"}
    assert [part for part in sorted(parts) if f"`{part}" not in TEXT] == []
    assert [level for level in LEVELS if level.removesuffix("_TRANSITIVE") not in TEXT] == []


def test_the_limits_are_those_of_the_code() -> None:
    assert f"at most {MAX_SCHEMA_CHARACTERS:,} characters" in TEXT
    assert f"body {MAX_BODY_BYTES >> 20} MiB" in TEXT
    assert f"at most {MAX_REFERENCES} others" in TEXT
