# ruff: noqa: T201  what it prints is its report
"""Runs the request sequences on a broker, records what Apache Kafka answers, and compares.

    python -m limits.answers record FACTS      stores Apache Kafka's answers
    python -m limits.answers accept FACTS      stores where Headrace differs; the reasons are to be written
    python -m limits.answers live              both brokers now, and the metrics that real clients push to them

A request sequence sends requests one after the other; each step has a name and an answer. Apache Kafka's jars are in
``.cache/apache-kafka-4.3.0``, and the program with the clients of Go is ``.cache/interop/go-checks``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import brokers, config_requests, quota_requests, telemetry_clients, telemetry_requests
from .telemetry_requests import Steps

ROOT = Path(__file__).resolve().parents[2]
DIFFERENCES = ROOT / "tests" / "broker" / "quotas" / "headrace_limit_differences.json"
JARS = ROOT / ".cache" / "apache-kafka-4.3.0"
GO_CHECKS = ROOT / ".cache" / "interop" / "go-checks"
REQUEST_SEQUENCES: Mapping[str, Callable[[str], Steps]] = {
    **telemetry_requests.REQUEST_SEQUENCES,
    **quota_requests.REQUEST_SEQUENCES,
    **config_requests.REQUEST_SEQUENCES,
}
#: By request sequence and step: the answer.
Facts = dict[str, dict[str, Any]]


def observe(address: str) -> Facts:
    return {name: observe_request_sequence(name, address) for name in REQUEST_SEQUENCES}


def observe_request_sequence(name: str, address: str) -> dict[str, Any]:
    # By way of JSON, as the recorded answers: tuples are lists.
    steps: dict[str, Any] = json.loads(json.dumps(dict(REQUEST_SEQUENCES[name](address))))
    return steps


def with_accepted(expected: Facts) -> Facts:
    """Returns the expected answers of Headrace: Apache Kafka's answers, but for differences with a reason."""
    accepted = json.loads(DIFFERENCES.read_text())
    return {
        sequence: {**steps, **{step: each["answer"] for step, each in accepted.get(sequence, {}).items()}}
        for sequence, steps in expected.items()
    }


def _differences(expected: Facts, observed: Facts) -> Facts:
    return {
        sequence: changed
        for sequence, steps in observed.items()
        if (changed := {step: answer for step, answer in steps.items() if expected[sequence].get(step) != answer})
    }


def _store(path: Path, facts: Mapping[str, Mapping[str, Any]]) -> None:
    """One line per step, so that changes are easy to read."""
    sequences = [
        f"  {json.dumps(sequence)}: {{\n"
        + ",\n".join(f"    {json.dumps(step)}: {json.dumps(answer)}" for step, answer in steps.items())
        + "\n  }"
        for sequence, steps in facts.items()
    ]
    path.write_text("{\n" + ",\n".join(sequences) + "\n}\n")


def _accept(expected: Facts, observed: Facts) -> int:
    known = json.loads(DIFFERENCES.read_text()) if DIFFERENCES.exists() else {}
    found = {
        sequence: {
            step: {"reason": known.get(sequence, {}).get(step, {}).get("reason", ""), "answer": answer}
            for step, answer in steps.items()
        }
        for sequence, steps in _differences(expected, observed).items()
    }
    _store(DIFFERENCES, found)
    print(f"ok {sum(map(len, found.values()))} steps differ")
    return 0


def _live(folder: Path) -> bool:
    """Compares both brokers now, and returns whether they are alike."""
    received = brokers.received_by_apache(folder)
    with brokers.apache(JARS, folder) as address:
        expected = with_accepted(observe(address))
        processes = [brokers.java_clients(JARS, folder), [str(GO_CHECKS), "telemetry"]]
        names = telemetry_clients.pushed(address, processes, lambda: telemetry_clients.received_by_apache(received))
    with brokers.headrace() as address:
        observed = observe(address)
    with brokers.headrace_with_metrics() as (address, endpoint):
        ours = telemetry_clients.pushed(address, processes, lambda: telemetry_clients.received_by_headrace(endpoint))
    found = _differences(expected, observed)
    for sequence, steps in found.items():
        for step, answer in steps.items():
            print(f"FAILED {sequence}, {step}: Apache Kafka: {expected[sequence].get(step)}; Headrace: {answer}")
    print(f"ok {sum(map(len, observed.values()))} answers compared")
    only = telemetry_clients.differences(names, ours)
    for line in only:
        print(f"FAILED pushed metrics, {line}")
    for client_id in telemetry_clients.WANTED:
        print(
            f"ok {client_id} pushes {len(names[client_id])} metrics to Apache Kafka, {len(ours[client_id])} to Headrace"
        )
    return not found and not only


def main(arguments: list[str]) -> int:
    command, *rest = arguments
    with tempfile.TemporaryDirectory(prefix="limits-") as name:
        folder = Path(name)
        if command == "record":
            with brokers.apache(JARS, folder) as address:
                _store(Path(rest[0]), observe(address))
            return 0
        if command == "accept":
            with brokers.headrace() as address:
                return _accept(json.loads(Path(rest[0]).read_text()), observe(address))
        is_alike = _live(folder)
    print("done")
    return 0 if is_alike else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
