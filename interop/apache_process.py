"""Runs one Apache Kafka, broker and controller in one process, with given settings."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

JAVA = ("java", "-Xmx700m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


@contextlib.contextmanager
def apache_process(
    jars: Path, folder: Path, settings: Mapping[str, str], *, classes: Path | None = None
) -> Iterator[None]:
    """Formats the folder ``log.dirs`` and starts a broker. The caller waits until the broker answers.

    :param classes: compiled classes that the settings name.
    """
    path = write_properties(folder / "apache.properties", settings)
    java = [*JAVA, "-cp", f"{jars}/*" if classes is None else f"{jars}/*:{classes}"]
    form = [*java, "kafka.tools.StorageTool", "format", "-t", "headrace-matrix-000000", "-c", str(path)]
    subprocess.run(form, check=True, capture_output=True, timeout=120)
    with (folder / "apache.log").open("wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(path)], stdout=log, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.kill()
        process.wait()
