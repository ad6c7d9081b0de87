"""``script/demo`` shows each step, and says what is missing when it cannot run."""

import os
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

import pytest

from headrace import Broker

SCRIPTS = Path(__file__).parents[2] / "script"


@pytest.mark.skipif("HEADRACE_SOAK" not in os.environ, reason="takes two minutes: run script/demo, or script/soak")
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("views-1")
def test_the_demonstration_ends_well():
    ran = subprocess.run([sys.executable, SCRIPTS / "demo.py"], capture_output=True, text=True, timeout=580)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "all 100,000 records are there" in ran.stdout
    assert "both views have counted all" in ran.stdout
    assert ran.stderr == ""


def test_the_log_is_shown(monkeypatch, capsys, tmp_path):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    steps, log = import_module("demo_steps"), import_module("demo_log")
    broker = steps.RunningBroker(tmp_path)
    try:
        log.show_the_log(broker)
    finally:
        broker.kill()
    assert "all 100,000 records are there" in capsys.readouterr().out


def test_the_console_stays_until_ctrl_c(monkeypatch, capsys, tmp_path):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.syspath_prepend(str(SCRIPTS.parent / "tests" / "console" / "views"))
    before = signal.getsignal(signal.SIGINT)

    def press_ctrl_c():
        until_s = time.monotonic() + 60
        while signal.getsignal(signal.SIGINT) is before and time.monotonic() < until_s:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    with Broker() as broker:
        project = import_module("views_project").pages_project(tmp_path, broker.bootstrap_servers)
        pressing = threading.Thread(target=press_ctrl_c)
        pressing.start()
        import_module("demo_console").show_console(broker.bootstrap_servers, tmp_path, ("pages",), keep=True)
        pressing.join()
        project.close()
    shown = capsys.readouterr().out
    assert "3 rows of pages" in shown
    assert "The console is at http://127.0.0.1:" in shown


def test_a_broker_that_does_not_start_is_one_clear_line(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    demo, steps = import_module("demo"), import_module("demo_steps")
    monkeypatch.setattr(steps, "HEADRACE", Path("/bin/false"))
    monkeypatch.setattr(demo.signal, "signal", lambda *_: None)
    assert demo.main() == 1
    assert capsys.readouterr().err.startswith("\nFAILED: the broker did not start")
