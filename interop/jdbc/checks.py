"""PostgreSQL's JDBC driver at switches that change columns: what docs/serving.md says of it. Part of script/interop.

Arguments: the class path of ``Reader`` and the driver. Prints a line per check, as ``interop/lib.sh`` wants it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.tables import repoint_view
from headrace.testing.postgresql_process import PostgresqlProcess

NAMED, STAR = "SELECT page, version FROM pages", "SELECT * FROM pages"
COLUMNS = cycle(("page, version", "page, version, 'x'::text AS more", "version, page"))
SWITCHES, READS = 30, 4000

#: Settings in the URL, how it reads, the statement, and the outcome of three reads after a switch.
CASES = (
    ("", "autocommit", NAMED, "..."),
    ("", "transactions", NAMED, "..."),
    ("", "autocommit", STAR, "..."),
    ("", "transactions", STAR, "x.."),
    ("&prepareThreshold=0", "transactions", STAR, "..."),
    ("&autosave=conservative", "transactions", STAR, "..."),
)


class DriverHarness:
    def __init__(self, url: str) -> None:
        self.database = Database(url)
        Catalog(self.database)
        self.version = 0

    def switch(self) -> None:
        self.version += 1
        rows = f"SELECT 'page ' || n AS page, {self.version} AS version FROM generate_series(1, 40) AS n"
        with self.database.begin() as connection:
            repoint_view(connection, "pages", f"SELECT {next(COLUMNS)} FROM ({rows}) AS made")


class Reader:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._commands, self._answers = process.stdin, process.stdout

    def ask(self, count: int) -> None:
        self._commands.write(f"{count}\n")
        self._commands.flush()

    def answer(self) -> str:
        return self._answers.readline().strip()


@contextmanager
def reader(class_path: str, *arguments: str) -> Iterator[Reader]:
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", class_path, "interop.Reader", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Reader(process)
    finally:
        process.kill()
        process.wait()


def check(harness: DriverHarness, one: Reader, expected: str) -> str | None:
    """What is wrong, if anything."""
    one.ask(8)  # past the fifth read the driver prepares the statement
    if (found := one.answer()) != "." * 8:
        return f"{found!r} before any switch"
    harness.switch()
    one.ask(3)
    if (found := one.answer()) != expected:
        return f"{found!r} after a switch, not {expected!r}"
    one.ask(READS)
    for _ in range(SWITCHES):
        harness.switch()
    found = one.answer()
    most = SWITCHES if "x" in expected else 0
    if len(found) != READS or found.count("x") > most:
        return f"{found.count('x')} of {len(found)} reads failed during {SWITCHES} switches"
    return None


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(class_path: str) -> None:
    server = PostgresqlProcess()
    server.start()
    try:
        harness = DriverHarness(server.url)
        harness.switch()
        address = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?user=headrace"
        for settings, how, sql, expected in CASES:
            with reader(class_path, address + settings, sql, how) as one:
                wrong = check(harness, one, expected)
            name = f"{sql} in {how}{' with ' + settings[1:] if settings else ''}"
            say(f"ok {name}" if wrong is None else f"FAILED {name}: {wrong}")
        harness.database.close()
    finally:
        server.close()
    say("done")


if __name__ == "__main__":
    main(sys.argv[1])
