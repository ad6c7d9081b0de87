"""The last part of ``script/demo``: a console shows the log and its views as one system.

With ``script/demo --console`` the console stays until Ctrl-C. Otherwise it is only checked.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from demo_steps import HEADRACE, WAIT_SECONDS, done, expect, title


def show_console(address: str, project: Path, views: Iterable[str], *, keep: bool) -> None:
    """
    :param address: of the broker.
    :param views: the views that the console must show with rows.
    :param keep: whether the console stays until Ctrl-C.
    """
    title("A console: topics, groups and views in the browser")
    command = [str(HEADRACE), "console", "--listen", "127.0.0.1:0", "--bootstrap-server", address]
    with (project / "console.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--project", str(project)], stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        expect(ready[:1] == ["ready"], f"the console did not start: {(project / 'console.log').read_text()}")
        url = f"http://{ready[1]}"
        topics = _read(f"{url}/api/topics")["topics"]["matching"]
        rows = _read(f"{url}/api/views")["rows"]
        for view in views:
            expect(bool(rows.get(view)), f"the console shows no rows of {view}: {rows}")
        told = ", ".join(f"{rows[view]} rows of {view}" for view in views)
        done(f"`headrace console` shows {topics} topics, {told}")
        if keep:
            print(f"\n      The console is at {url} until Ctrl-C.", flush=True)
            print(f"      The views go on with: headrace views run --project {project}", flush=True)
            _wait_for_ctrl_c(process)
        else:
            done("`script/demo --console` keeps it open, and prints its address")
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def _read(url: str) -> Any:
    with urlopen(url, timeout=WAIT_SECONDS) as answer:
        return json.load(answer)


def _wait_for_ctrl_c(process: subprocess.Popen[str]) -> None:
    is_asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: is_asked.append(number))
    try:
        while not is_asked and process.poll() is None:
            time.sleep(0.2)
    finally:
        signal.signal(signal.SIGINT, before)
    expect(process.poll() is None, "the console has ended by itself")
