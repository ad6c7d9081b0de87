"""A large answer of ``headrace views serve`` into a DataFrame of pandas: Arrow against CSV.

    .venv/bin/python bench/reading.py [--quick] [--write] [--rounds 5] [--rows 1000000]

A view of a million rows (an integer, a text, a double, a boolean, a timestamp) is in SQLite and in PostgreSQL. For
each, one server runs, and this process reads the view with ``limit=all``: as Arrow by ``headrace.views``, and as CSV by
``pandas.read_csv``. The sides take turns. The time is from the request to the DataFrame, the best turn counts, and both
frames have the same values. The memory is the server's peak, less what it was before the first answer. ``--write`` puts
the table into docs/performance.md. PostgreSQL must be installed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import report
import turns
from report import Row, Table

import headrace.views
from headrace.pipeline.serving.catalog import Catalog, Progress, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.tables import create_table, data_table, select_all
from headrace.testing.postgresql_process import PostgresqlProcess

SQL = "SELECT id, page, amount, paid, at FROM sales"
BAR = 5.0
_PER_LOAD = 100_000
_NOTE = (
    "The answer of `SELECT id, page, amount, paid, at FROM sales` (integer, text of 12 characters, double, boolean, "
    "timestamp), from the request to the pandas DataFrame, both with `limit=all` and without compression: "
    "`headrace.views.connect(url).query(sql).to_pandas()` against `pandas.read_csv`. The frames have the same values; "
    "times are texts with SQLite. The best of the turns counts."
)


def sales(count: int) -> Iterator[pa.Table]:
    for first in range(0, count, _PER_LOAD):
        numbers = np.arange(first, min(first + _PER_LOAD, count))
        yield pa.table(
            {
                "id": numbers,
                "page": [f"page-{number:07d}" for number in numbers.tolist()],
                "amount": numbers / 7,
                "paid": numbers % 3 == 0,
                "at": pa.array(numbers * 1_000_000 + 1_767_225_600_000_000, pa.timestamp("us")),
            }
        )


def fill(url: str, count: int) -> None:
    database = Database(url)
    catalog = Catalog(database)
    catalog.create_view("sales", "kappa", "h")
    catalog.add_version("sales", {}, "h")
    for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
        catalog.set_state("sales", 1, event)
    table = data_table("sales__v1", next(sales(1)).schema, ["id"])
    with database.begin() as connection:
        create_table(connection, table)
        for rows in sales(count):
            database.bulk_load(connection, table, rows, batch_id=1)
        catalog.set_progress(connection, Progress("sales", 1, 1, {"sales": {0: count}}))
        catalog.switch(connection, "sales", 1, select_all(table))
    database.close()


@contextmanager
def serving(folder: Path, url: str) -> Iterator[tuple[str, psutil.Process]]:
    folder.mkdir()
    (folder / "headrace.toml").write_text(f'[serving]\nurl = "{url}"\n')
    command = [sys.executable, "-c", "from headrace.tools.main import main; main()", "views", "serve"]
    command += ["--project", str(folder), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        yield f"http://{address}", psutil.Process(process.pid)
        process.terminate()


def by_csv(url: str, times: list[str]) -> pd.DataFrame:
    with urlopen(
        f"{url}/query?{urlencode({'sql': SQL, 'format': 'csv', 'limit': 'all', 'timeout_ms': 300_000})}"
    ) as found:
        return pd.read_csv(found, parse_dates=times)


def by_arrow(url: str) -> pd.DataFrame:
    return headrace.views.connect(url).query(SQL).to_pandas()


def measure(table: Table, name: str, url: str, folder: Path, count: int, rounds: int) -> None:
    fill(url, count)
    times = ["at"] if name == "PostgreSQL" else []
    frames: dict[str, pd.DataFrame] = {}

    with serving(folder, url) as (address, process):

        def load(side: str) -> tuple[float, float]:
            _reset_peak(process)
            before = process.memory_info().rss
            began = time.perf_counter()
            frames[side] = by_csv(address, times) if side == "apache" else by_arrow(address)
            took = time.perf_counter() - began
            print(f"  {side:<9} {took:.2f} s", flush=True)
            return took, (_peak_bytes(process) - before) / 1e6

        load("apache")
        load("headrace")
        results = turns.alternate({"apache": "apache", "headrace": "headrace"}, load, rounds=rounds)
    one, other = frames["apache"], frames["headrace"]
    pd.testing.assert_frame_equal(one, other.astype({"at": one["at"].dtype}) if times else other, check_dtype=False)
    for side, found in results.items():
        table.put(side, f"{name} rows", count / min(took for took, _ in found))
        table.put(side, f"{name} memory", max(memory for _, memory in found))


def _reset_peak(process: psutil.Process) -> None:
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def _peak_bytes(process: psutil.Process) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows, one round")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (default %(default)s)")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    count = options.rows // 20 if options.quick else options.rows
    rows = {}
    for name in ("PostgreSQL", "SQLite"):
        rows[f"{name} rows"] = Row(f"{count / 1e6:g} M rows from {name} into pandas", "rows/s", ">=", BAR)
        rows[f"{name} memory"] = Row(f"memory of the server meanwhile, {name}", "MB", "<=")
    table = Table(rows, peer="CSV", ours="Arrow")
    rounds = 1 if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as folder, closing(PostgresqlProcess()) as postgresql:
        postgresql.start()
        measure(table, "PostgreSQL", postgresql.url, Path(folder) / "p", count, rounds)
        measure(table, "SQLite", f"sqlite:///{folder}/views.db", Path(folder) / "s", count, rounds)
    text = table.markdown(_NOTE)
    print(text)
    if options.write:
        report.write("reading", text)


if __name__ == "__main__":
    main()
