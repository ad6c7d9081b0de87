"""Runs the code of docs/clients.md, block after block, against one broker."""

import re
from pathlib import Path

import pytest

from headrace import Broker

GUIDE = Path(__file__).parents[2] / "docs" / "clients.md"
ADDRESS = "127.0.0.1:9092"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    assert len(blocks) >= 10
    with Broker() as broker:
        for block in blocks:
            line = text.count("\n", 0, block.start(1))
            code = block[1].replace(ADDRESS, broker.bootstrap_servers)
            # As many empty lines before it make a traceback name the line of the page.
            exec(compile("\n" * line + code, str(GUIDE), "exec"), {"__name__": "__main__"})
    assert "too large: " in capsys.readouterr().out
