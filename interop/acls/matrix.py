# ruff: noqa: T201  what it prints is its report
"""Runs the ACL matrix on a broker, records what Apache Kafka answers, and compares.

    python -m acls.matrix record FACTS [ROW...]      stores Apache Kafka's answers; with rows, only those
    python -m acls.matrix compare FACTS [ROW...]     Headrace with the file
    python -m acls.matrix member FACTS [ROW...]      a cluster of one Headrace with the file
    python -m acls.matrix accept FACTS               stores where Headrace differs; the reasons are to be written
    python -m acls.matrix live [ROW...]              Headrace with Apache Kafka, both now

A row may be a pattern: ``metadata*``. Apache Kafka's jars are in ``.cache/apache-kafka-4.3.0``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from headrace.testing.raw_client import ClosedByPeer

from . import (
    brokers,
    rows_configs,
    rows_groups,
    rows_records,
    rows_rules,
    rows_security,
    rows_topics,
    rows_transactions,
)
from .cells import Cell, Row
from .normal_form import normal_form
from .session import Addresses, Session, create_acls, create_topics, wait_for_coordinators

ROOT = Path(__file__).resolve().parents[2]
DIFFERENCES = ROOT / "tests" / "broker" / "authorization" / "headrace_acl_differences.json"
JARS = ROOT / ".cache" / "apache-kafka-4.3.0"
_MODULES = (rows_records, rows_topics, rows_groups, rows_transactions, rows_configs, rows_security, rows_rules)
ROWS: tuple[Row, ...] = tuple(row for module in _MODULES for row in module.ROWS)
#: By row and column: the answer in its normal form.
Facts = dict[str, dict[str, Any]]


def cells_of(rows: tuple[Row, ...]) -> list[Cell]:
    return [Cell(row, column) for row in rows for column in row.all_columns]


def observe(addresses: Addresses, cells: list[Cell]) -> Facts:
    """Creates everything that the cells need, then sends the request of each cell."""
    facts: Facts = {}
    with addresses.admin() as admin:
        wait_for_coordinators(admin)
        ids = create_topics(admin, [cell.name(short) for cell in cells for short in cell.row.topics])
        for cell in cells:
            cell.topic_ids = {short: ids[cell.name(short)] for short in cell.row.topics}
        create_acls(admin, [acl for cell in cells for acl in cell.column.acls(cell)])
        for cell in cells:
            facts.setdefault(cell.row.name, {})[cell.column.name] = _observe_cell(addresses, cell, admin)
    return facts


def _observe_cell(addresses: Addresses, cell: Cell, admin: Session) -> Any:
    try:
        if cell.row.prepare is not None:
            cell.row.prepare(cell, admin)
        with addresses.session(cell) as session:
            try:
                return normal_form(cell, _answer(cell, session))
            except ClosedByPeer:
                return {"closed": True}
    except Exception as error:  # noqa: BLE001  the other cells are worth knowing too
        return {"failed": f"{type(error).__name__}: {error}"}


def _answer(cell: Cell, session: Session) -> Any:
    if cell.row.ask is not None:
        return cell.row.ask(cell, session)
    return session.ask(cell.row.api, cell.row.version, **cell.row.request(cell))


def with_accepted(expected: Facts) -> Facts:
    """Returns the expected answers of Headrace: Apache Kafka's answers, but for differences with a reason."""
    accepted = json.loads(DIFFERENCES.read_text())
    return {row: {**by_column, **accepted.get(row, {"answers": {}})["answers"]} for row, by_column in expected.items()}


def differences(expected: Facts, observed: Facts) -> list[str]:
    """One text per cell that differs."""
    return [
        f"{row}, {column}:\n  Apache Kafka: {json.dumps(expected[row].get(column), sort_keys=True)}\n"
        f"  Headrace:     {json.dumps(answer, sort_keys=True)}"
        for row, by_column in observed.items()
        for column, answer in by_column.items()
        if expected[row].get(column) != answer
    ]


def _chosen(patterns: list[str]) -> tuple[Row, ...]:
    return tuple(row for row in ROWS if not patterns or any(fnmatch(row.name, each) for each in patterns))


def read_facts(path: Path) -> Facts:
    """The file has each answer once, with the columns that got it."""
    stored = json.loads(path.read_text())
    return {
        row: {column: each["answer"] for each in answers for column in each["columns"]}
        for row, answers in stored.items()
    }


def _save(path: Path, facts: Facts) -> None:
    known = read_facts(path) if path.exists() else {}
    known.update(facts)
    texts = []
    for row in ROWS:
        by_answer: dict[str, list[str]] = {}
        for column, answer in known.get(row.name, {}).items():
            by_answer.setdefault(json.dumps(answer), []).append(column)
        answers = [f'    {{"columns": {json.dumps(columns)}, "answer": {text}}}' for text, columns in by_answer.items()]
        texts.append(f'  "{row.name}": [\n' + ",\n".join(answers) + "\n  ]")
    path.write_text("{\n" + ",\n".join(texts) + "\n}\n")


def _record(path: Path, facts: Facts) -> int:
    failed = [
        f"{row}, {column}: {answer['failed']}"
        for row, by_column in facts.items()
        for column, answer in by_column.items()
        if "failed" in answer
    ]
    if failed:
        print("\n".join(failed))
        return 1
    _save(path, facts)
    print(f"ok {len(facts)} rows recorded")
    return 0


def _accept(expected: Facts, observed: Facts) -> int:
    known = json.loads(DIFFERENCES.read_text())
    differing = {
        row: {column: answer for column, answer in by_column.items() if expected[row][column] != answer}
        for row, by_column in observed.items()
    }
    texts = [
        f'  "{row}": {{\n    "reason": {json.dumps(known.get(row, {}).get("reason", ""))},\n    "answers": {{\n'
        + ",\n".join(f'      "{column}": {json.dumps(answer)}' for column, answer in answers.items())
        + "\n    }\n  }"
        for row, answers in differing.items()
        if answers
    ]
    DIFFERENCES.write_text("{\n" + ",\n".join(texts) + "\n}\n")
    print(f"ok {len(texts)} rows differ")
    return 0


def main(arguments: list[str]) -> int:
    command, *rest = arguments
    path = None if command == "live" else Path(rest.pop(0))
    cells = cells_of(_chosen(rest))
    with tempfile.TemporaryDirectory(prefix="acl-matrix-") as name:
        folder = Path(name)
        if command in ("accept", "compare", "member") and path is not None:
            expected = read_facts(path)
        else:
            with brokers.apache(JARS, folder, cells) as addresses:
                expected = observe(addresses, cells)
        if command == "record" and path is not None:
            return _record(path, expected)
        with brokers.headrace(folder, cells, is_member=command == "member") as addresses:
            observed = observe(addresses, cells_of(_chosen(rest)))
    if command == "accept":
        return _accept(expected, observed)
    found = differences(with_accepted(expected), observed)
    for each in found:
        print(f"FAILED {each}")
    print(f"ok {len(cells) - len(found)} of {len(cells)} cells are equal")
    print("done")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
