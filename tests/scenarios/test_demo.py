"""``script/demo`` shows what it says, and says so when it cannot."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

DEMO = Path(__file__).parents[2] / "script" / "demo.py"


def test_the_demonstration_ends_well():
    ran = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "all 100,000 records are there" in ran.stdout
    assert ran.stderr == ""


def test_a_broker_that_does_not_start_is_one_clear_line(monkeypatch, capsys):
    spec = spec_from_file_location("headrace_demo", DEMO)
    demo = module_from_spec(spec)
    spec.loader.exec_module(demo)
    monkeypatch.setattr(demo, "HEADRACE", Path("/bin/false"))
    monkeypatch.setattr(demo.signal, "signal", lambda *_: None)
    assert demo.main() == 1
    assert capsys.readouterr().err.startswith("\nFAILED: the broker did not start")
