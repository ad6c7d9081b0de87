"""``headrace query``: runs SQL over the views of a project, in the serving database.

The command reads the serving database directly; neither the broker nor ``headrace views run`` needs to run. Rows go to
standard output. The offsets up to which the answer counts, and its age, go to standard error, or into the JSON.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from headrace.tools.shared.commands import CommandError, Output, Table, UsageError, columns, new_parser, run

if TYPE_CHECKING:
    from headrace.pipeline.serving.queries.query import Answer, QueryService

_EXAMPLES = """
headrace query "SELECT * FROM pages ORDER BY clicks DESC LIMIT 10"
headrace query "SELECT count(*) FROM pages" --project shop --json
headrace query "SELECT * FROM pages" --database postgresql://reader@db.example/views --csv --limit 100000 > pages.csv
headrace query "SELECT sum(a.n - b.n) FROM a JOIN b ON a.page = b.page" --same-offsets
headrace query --watch "SELECT * FROM pages WHERE clicks > 100"
echo "SELECT max(clicks) FROM pages" | headrace query - --timeout 1000
"""
#: The same values as in the serving layer, which --help does not import.
_DEFAULT_LIMIT = 1000
_DEFAULT_TIMEOUT_MS = 30_000


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "query",
        "Query the views of a project in SQL, and show up to which offsets the answer counts. A query only reads.",
        _EXAMPLES,
        connects=False,
    )
    parser.add_argument("sql", metavar="SQL", help="one SELECT statement; - reads it from standard input")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--project", metavar="DIR", default=".", help="the project's folder (default: the current folder)"
    )
    where.add_argument(
        "--database",
        metavar="URL",
        help="the URL of the serving database: sqlite:///FILE or postgresql://USER@HOST/NAME",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="print the answer, then how it changes, until Ctrl-C: + for a row that came, - for one that went, ~ for "
        "one that changed, = for the offsets; with --json, a line per change",
    )
    parser.add_argument(
        "--same-offsets",
        action="store_true",
        help="fail if the views of the statement count other records of a common topic",
    )
    parser.add_argument("--csv", action="store_true", help="results as CSV")
    parser.add_argument(
        "--limit",
        metavar="ROWS",
        type=_positive,
        default=_DEFAULT_LIMIT,
        help="the largest number of rows (default %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        metavar="MS",
        type=_positive,
        default=_DEFAULT_TIMEOUT_MS,
        help="stop the query after this time (default %(default)s)",
    )
    return parser


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _work(options: Namespace, out: Output) -> None:
    if options.csv and options.json:
        raise UsageError("give --json or --csv, not both")
    if options.csv and options.watch:
        raise UsageError("--watch prints lines or, with --json, JSON lines; remove --csv")
    if options.same_offsets and options.watch:
        raise UsageError("--watch shows the offsets of each answer and does not end; remove --same-offsets")
    sql = sys.stdin.read() if options.sql == "-" else options.sql
    if options.watch:
        _watch(options, sql)
        return
    answer = _ask(options, sql)
    _show(answer, options, out)
    if not options.json:
        sys.stdout.flush()
        sys.stderr.writelines(f"{line}\n" for line in _remarks(answer, options.limit))


def _ask(options: Namespace, sql: str) -> Answer:
    with closing(_service(options)) as service:
        return service.query(sql, limit=options.limit, timeout_ms=options.timeout, same_offsets=options.same_offsets)


def _watch(options: Namespace, sql: str) -> None:
    from headrace.tools.query.watch import watch

    with closing(_service(options)) as service:
        watch(service, sql, options)


def _service(options: Namespace) -> QueryService:
    try:
        from headrace.pipeline.serving.database_url import serving_url
        from headrace.pipeline.serving.queries.query import QueryService
    except ImportError as error:
        raise CommandError(f"views need more packages: pip install 'headrace[spark]' ({error})") from None

    return QueryService(serving_url(options.database or options.project))


def _show(answer: Answer, options: Namespace, out: Output) -> None:
    from headrace.pipeline.serving.queries.formats import answer_value, csv_text, plain_cell

    if options.csv:
        sys.stdout.write(csv_text(answer.columns, answer.rows))
        return
    rows = [[plain_cell(value) for value in row] for row in answer.rows]
    lines = (line.rstrip() for line in columns(answer.columns, rows, gap=2))
    out.show(answer_value(answer) if options.json else None, lines, Table(answer.columns, rows))


def _remarks(answer: Answer, limit: int) -> Iterable[str]:
    """Remarks about an answer that its rows do not show."""
    from headrace.views.answers import as_of_text

    if answer.is_truncated:
        yield f"only the first {limit} rows are shown: there are more (--limit)"
    for as_of in answer.as_of:
        yield as_of_text(as_of)
