"""``python -m headrace.testing.simulator SEED [COUNT]``: replays the simulation of one seed, or runs COUNT seeds."""

import logging
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from headrace.testing.simulator.simulation import simulate


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Iteration over a set of strings follows their hashes, so a replay needs the same hashes.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "headrace.testing.simulator", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    arguments = [int(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
    if not arguments:
        print(__doc__, file=sys.stderr)  # noqa: T201
        return 2
    first, number = arguments[0], arguments[1] if len(arguments) > 1 else 1
    logging.basicConfig(level=logging.INFO if "-v" in sys.argv else logging.CRITICAL, format="%(name)s %(message)s")
    bad = 0
    for seed in range(first, first + number):
        began = perf_counter()
        with TemporaryDirectory(dir=memory_disk()) as folder:
            result = simulate(seed, Path(folder))
        print(f"{result.summary()}, took {perf_counter() - began:.1f} s", flush=True)  # noqa: T201
        if not result.has_passed:
            bad += 1
            for fault in result.faults[:20]:
                print(f"  {fault}")  # noqa: T201
        if number == 1 or not result.has_passed:
            for when_s, event in result.history.events:
                print(f"    {when_s:8.3f} s  {event}")  # noqa: T201
    return 1 if bad else 0


def memory_disk() -> str | None:
    """A folder in memory for the logs of simulated brokers, or None where there is none."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


if __name__ == "__main__":
    sys.exit(main())
