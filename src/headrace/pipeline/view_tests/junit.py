"""Writes the results of tests as JUnit XML, for CI servers: a suite per file, a case per test and architecture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from headrace.pipeline.view_tests.report_text import failure_title, place_of
from headrace.pipeline.view_tests.results import Failure, Result

#: What XML 1.0 cannot have, not even as an entity.
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(results: Sequence[Result], files: Sequence[str]) -> bytes:
    """
    :param files: for each result, the name of its file as the user sees it.
    """
    root = ElementTree.Element("testsuites", name="headrace views test")
    for file in dict.fromkeys(files):
        of_file = [result for result, each in zip(results, files, strict=True) if each == file]
        _suite(root, file, of_file)
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def write_junit(path: Path, results: Sequence[Result], files: Sequence[str]) -> None:
    """
    :raises OSError: if the file cannot be written.
    """
    path.write_bytes(junit_xml(results, files))


def _suite(root: ElementTree.Element, file: str, results: Sequence[Result]) -> None:
    suite = ElementTree.SubElement(root, "testsuite", name=_text(file))
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for result in results:
        share = result.seconds / max(1, len(result.tried))
        for architecture, _ in result.tried or (("", ""),):
            case = _case(suite, result, architecture, file)
            case.set("time", f"{share:.3f}")
            counts["tests"] += 1
            failures = [each for each in result.failures if each.architecture == architecture]
            counts["failures"] += bool(failures)
            if failures:
                _failure(case, result, failures, file)
            if result.problems:
                counts["errors"] += 1
                message = "; ".join(str(problem) for problem in result.problems)
                ElementTree.SubElement(case, "error", message=_text(message))
        for architecture, why in result.skipped:
            counts["tests"] += 1
            counts["skipped"] += 1
            case = _case(suite, result, architecture, file)
            ElementTree.SubElement(case, "skipped", message=_text(why))
    for name, count in counts.items():
        suite.set(name, str(count))
    suite.set("time", f"{sum(result.seconds for result in results):.3f}")


def _case(suite: ElementTree.Element, result: Result, architecture: str, file: str) -> ElementTree.Element:
    name = f"{result.test.name} ({architecture})" if architecture else result.test.name
    case = ElementTree.SubElement(
        suite, "testcase", classname=_text(result.test.view), name=_text(name), file=_text(file)
    )
    if result.test.line is not None:
        case.set("line", str(result.test.line))
    return case


def _failure(case: ElementTree.Element, result: Result, failures: Sequence[Failure], file: str) -> None:
    made = ElementTree.SubElement(case, "failure", message=_text(failure_title(result, failures[0])))
    lines: list[str] = []
    for each in failures:
        lines.append(f"{place_of(each, file)}: {failure_title(result, each)}")
        lines += each.lines
    made.text = _text("\n".join(lines))


def _text(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)
