"""Runs ``script/demo``. Every step checks its claim; the first claim that fails ends the demo with exit code 1.

First the log by itself (``demo_log``), then views over it (``demo_views``), then a console of both
(``demo_console``), which ``--console`` keeps until Ctrl-C. Broker and views are processes of their
own, started as a user would start them.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import KafkaException
from demo_console import show_console
from demo_log import show_the_log
from demo_steps import RunningBroker, Unexpected, title
from demo_views import show_views

from headrace.pipeline.serving.errors import ServingError


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started goes with us
    began = time.perf_counter()
    try:
        with TemporaryDirectory(prefix="headrace-demo-") as folder:
            demonstrate(Path(folder), keep_console="--console" in sys.argv[1:])
    except (
        Unexpected, KafkaException, ServingError, OSError, TimeoutError, subprocess.SubprocessError,
    ) as error:  # fmt: skip
        print(f"\nFAILED: {str(error) or type(error).__name__}", file=sys.stderr)
        return 1
    print(f"\nAll of it held, in {time.perf_counter() - began:.1f} s.")
    return 0


def demonstrate(folder: Path, *, keep_console: bool) -> None:
    title("Start a broker, in an empty folder")
    broker = RunningBroker(folder)
    try:
        show_the_log(broker)
        show_views(broker, folder / "shop")
        show_console(broker.address, folder / "shop", ("pages", "visitors"), keep=keep_console)
        title("Stop the broker")
        broker.stop()
    finally:
        broker.kill()


if __name__ == "__main__":
    sys.exit(main())
