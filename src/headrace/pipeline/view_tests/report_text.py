"""Writes verdicts for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.pipeline.view_tests.verdicts import Failure, Verdict


def verdict_lines(verdict: Verdict, file: str) -> list[str]:
    """
    :param file: the name of the file as the user sees it.
    """
    status = "passed" if verdict.is_passed else "FAILED"
    tried = ", ".join(f"{architecture} by {way}" for architecture, way in verdict.tried)
    lines = [f"{status}  {verdict.test.label}  ({tried or 'not run'}; {verdict.seconds:.1f} s)"]
    lines += [f"        {architecture} is skipped: {why}" for architecture, why in verdict.skipped]
    if verdict.note:
        lines.append(f"        {verdict.note}")
    for alike in _alike(verdict.failures):
        lines.append(f"    {place_of(alike[0], file)}: {failure_title(verdict, *alike)}")
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


def failure_title(verdict: Verdict, failure: Failure, *others: Failure) -> str:
    """``step 2 (Ann moves), kappa by touched: 1 row changed``.

    :param others: the same failure in other architectures.
    """
    step = verdict.test.steps[failure.step - 1] if failure.step <= len(verdict.test.steps) else None
    named = f" ({step.name})" if step is not None and step.name else ""
    where = f"step {failure.step}{named}, " if len(verdict.test.steps) > 1 else ""
    which = " and ".join(f"{each.architecture} by {each.way}" for each in (failure, *others))
    return f"{where}{which}: {failure.what}"


def summary_line(verdicts: Sequence[Verdict], seconds: float) -> str:
    failed = sum(not verdict.is_passed for verdict in verdicts)
    passed = len(verdicts) - failed
    parts = [f"{failed} failed"] if failed else []
    parts += [f"{passed} passed"] if passed or not failed else []
    return f"{', '.join(parts)} in {seconds:.1f} s"


def as_json(verdict: Verdict, file: str) -> dict[str, Any]:
    test = verdict.test
    return {
        "file": file,
        "line": test.line,
        "view": test.view,
        "test": test.name,
        "passed": verdict.is_passed,
        "seconds": round(verdict.seconds, 3),
        "ways": dict(verdict.tried),
        "skipped": dict(verdict.skipped),
        "note": verdict.note,
        "failures": [
            {
                "architecture": failure.architecture,
                "way": failure.way,
                "step": failure.step,
                "line": failure.line,
                "what": failure.what,
                "diff": list(failure.lines),
            }
            for failure in verdict.failures
        ],
    }
