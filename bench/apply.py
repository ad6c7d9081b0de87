"""Measures ``headrace views apply`` of one changed view while ``headrace views run`` is up, against an earlier commit.

    .venv/bin/python bench/apply.py BEFORE [--turns N]

BEFORE is a commit; the other side is this checkout. The runner is that of this checkout for both sides: the earlier
``apply`` does not use it, and starts a Spark of its own. Both take turns on one project with one view; each turn
changes the query, runs ``apply --dry-run`` and takes the time of the command. ``explain``, and a mistake that needs no
Spark, are measured beside, on this checkout only.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import loads
import servers
from commits import Side, checkout

_BAR = 0.25
_QUERY = "SELECT page, count(*) AS n, max(ms) AS x{number} FROM events GROUP BY page"
_VIEW = (
    'topics = ["{topic}"]\narchitecture = "lambda"\nquery = "pages.sql"\n[decode]\nschema = "page STRING, ms BIGINT"\n'
)
_HEADRACE = (sys.executable, "-c", "from headrace.tools.main import main; main()")
_numbers = count()


def headrace(side: Side, *words: str, fails: bool = False) -> float:
    """The seconds that a command takes."""
    command = [*_HEADRACE, "views", *words]
    began = time.perf_counter()
    ended = subprocess.run(command, env=side.environment, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode != 0) == fails, ended.stderr
    return time.perf_counter() - began


def measure(before: Side, now: Side, folder: Path, turns: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"before": [], "now": [], "explain": [], "no such table": []}
    query, where = folder / "views" / "pages.sql", ("--project", str(folder))
    for _ in range(turns):
        for name, side in (("before", before), ("now", now)):
            query.write_text(_QUERY.format(number=next(_numbers)))
            found[name].append(headrace(side, "apply", "--dry-run", *where))
        found["explain"].append(headrace(now, "explain", "pages", *where))
        query.write_text("SELECT page FROM nowhere")
        found["no such table"].append(headrace(now, "apply", *where, fails=True))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as scratch,
        checkout(options.before) as root,
        servers.headrace(Path(scratch, "data")) as server,
    ):
        before, now, folder = Side("before", root), Side("now", servers.ROOT), Path(scratch, "project")
        topic = "clicks"
        loads.create_topic(server, topic, 1)
        folder.mkdir()
        (folder / "views").mkdir()
        (folder / "headrace.toml").write_text(f'[log]\nbootstrap = "127.0.0.1:{server.port}"\n')
        (folder / "views" / "pages.toml").write_text(_VIEW.format(topic=topic))
        (folder / "views" / "pages.sql").write_text(_QUERY.format(number=next(_numbers)))
        headrace(now, "apply", "--project", str(folder))
        command = [*_HEADRACE, "views", "run", "--project", str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as runner:
            assert runner.stdout is not None
            assert runner.stdout.readline() == "ready\n"
            try:
                found = measure(before, now, folder, options.turns)
            finally:
                runner.terminate()
    medians = {name: statistics.median(times) for name, times in found.items()}
    for name, times in found.items():
        print(f"{name:14} {medians[name]:6.2f} s   ({', '.join(f'{each:.2f}' for each in times)})")
    ratio = medians["now"] / medians["before"]
    print(f"apply, now / before: {ratio:.2f}, at most {_BAR}: {'reached' if ratio <= _BAR else 'MISSED'}")


if __name__ == "__main__":
    main()
