"""Writes the results of tests for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.pipeline.view_tests.results import Failure, Result


def result_lines(result: Result, file: str) -> list[str]:
    """
    :param file: the name of the file as the user sees it.
    """
    status = "passed" if result.is_passed else "FAILED"
    tried = ", ".join(f"{architecture} by {way}" for architecture, way in result.tried)
    lines = [f"{status}  {result.test.label}  ({tried or 'not run'}; {result.seconds:.1f} s)"]
    lines += [f"        {architecture} is skipped: {why}" for architecture, why in result.skipped]
    if result.note:
        lines.append(f"        {result.note}")
    for alike in _alike(result.failures):
        lines.append(f"    {place_of(alike[0], file)}: {failure_title(result, *alike)}")
        lines += [f"        {line}" for line in alike[0].lines]
    return lines


def _alike(failures: Sequence[Failure]) -> list[list[Failure]]:
    """The failures; those that differ in their architecture only are one."""
    found: dict[tuple[int, str, tuple[str, ...]], list[Failure]] = {}
    for each in failures:
        found.setdefault((each.step, each.what, each.lines), []).append(each)
    return list(found.values())


def place_of(failure: Failure, file: str) -> str:
    return file if failure.line is None else f"{file}:{failure.line}"


def failure_title(result: Result, failure: Failure, *others: Failure) -> str:
    """``step 2 (Ann moves), kappa by touched: 1 row changed``.

    :param others: the same failure in other architectures.
    """
    step = result.test.steps[failure.step - 1] if failure.step <= len(result.test.steps) else None
    named = f" ({step.name})" if step is not None and step.name else ""
    where = f"step {failure.step}{named}, " if len(result.test.steps) > 1 else ""
    which = " and ".join(f"{each.architecture} by {each.way}" for each in (failure, *others))
    return f"{where}{which}: {failure.what}"


def summary_line(results: Sequence[Result], seconds: float) -> str:
    failed = sum(not result.is_passed for result in results)
    passed = len(results) - failed
    parts = [f"{failed} failed"] if failed else []
    parts += [f"{passed} passed"] if passed or not failed else []
    return f"{', '.join(parts)} in {seconds:.1f} s"


def as_json(result: Result, file: str) -> dict[str, Any]:
    test = result.test
    return {
        "file": file,
        "line": test.line,
        "view": test.view,
        "test": test.name,
        "passed": result.is_passed,
        "seconds": round(result.seconds, 3),
        "ways": dict(result.tried),
        "skipped": dict(result.skipped),
        "note": result.note,
        "failures": [
            {
                "architecture": failure.architecture,
                "way": failure.way,
                "step": failure.step,
                "line": failure.line,
                "what": failure.what,
                "diff": list(failure.lines),
            }
            for failure in result.failures
        ],
    }
