"""``python -m headrace.testing.simulator SEED [COUNT]``: replays one simulation, or runs many from a seed on."""

import logging
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from headrace.testing.simulator.simulation import simulate


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of names are walked through in the order of their hashes.
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
            verdict = simulate(seed, Path(folder))
        print(f"{verdict.summary()}, took {perf_counter() - began:.1f} s", flush=True)  # noqa: T201
        if not verdict.is_good:
            bad += 1
            for fault in verdict.faults[:20]:
                print(f"  {fault}")  # noqa: T201
        if number == 1 or not verdict.is_good:
            for when_s, event in verdict.history.events:
                print(f"    {when_s:8.3f} s  {event}")  # noqa: T201
    return 1 if bad else 0


def memory_disk() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


if __name__ == "__main__":
    sys.exit(main())
