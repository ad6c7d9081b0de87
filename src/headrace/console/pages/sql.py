"""The page that asks the serving database: a statement that reads, its answer as a table and a chart."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from headrace.console.fields import Field
from headrace.console.pages.page import Page
from headrace.console.problems import ConsoleError, Refused
from headrace.console.request import ConsoleRequest
from headrace.console.views.answer_chart import answer_chart
from headrace.console.views.model import Table

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened

MOST_HISTORY = 20
#: The parameters that the page and the downloads have.
SQL = Field("sql", "Statement", kind="long_text", longest=10_000, help="one SELECT, VALUES or WITH")
TIMEOUT = Field("timeout_ms", "Milliseconds at most", kind="number", default=10_000, least=1, most=30_000)


@dataclass(frozen=True)
class SqlPage:
    """A statement and its answer.

    :ivar answer: None if nothing was asked, or if the statement failed.
    :ivar problem: why the statement failed; empty if it did not.
    :ivar history: the last statements of the session, the newest first.
    :ivar tables: the views that serve, with their columns.
    :ivar chart: an answer of two columns as SVG; empty if the answer cannot be drawn.
    """

    is_given: bool
    sql: str
    answer: Table | None
    problem: str
    advice: str
    history: tuple[str, ...]
    tables: dict[str, tuple[str, ...]]
    chart: str
    has_arrow: bool


async def read(request: ConsoleRequest) -> SqlPage:
    """Runs one statement that only reads, with limits of rows and time, and returns its rows with their offsets."""
    sql, session = request.text("sql").strip(), request.session
    has_arrow = find_spec("pyarrow") is not None
    if request.services.views.folder is None:
        return SqlPage(False, sql, None, "", "", (), {}, "", has_arrow)
    tables = await _tables(request)
    answer, problem, advice = None, "", ""
    if sql:
        try:
            answer = await _answer(request, sql)
        except ConsoleError as error:
            problem, advice = str(error), error.advice
        session.statements = [sql, *(each for each in session.statements if each != sql)][:MOST_HISTORY]
    drawn = None if answer is None else answer_chart(answer)
    return SqlPage(True, sql, answer, problem, advice, tuple(session.statements), tables, drawn or "", has_arrow)


async def _answer(request: ConsoleRequest, sql: str) -> Table:
    check_may_ask(request)
    limit, timeout_ms = request.number("rows"), request.number("timeout_ms")

    def ask(opened: Opened) -> Table:
        from headrace.console.views.answers import run_statement

        return run_statement(opened, sql, limit=limit, timeout_ms=timeout_ms)

    return await request.services.views.ask(ask)


def check_may_ask(request: ConsoleRequest) -> None:
    """
    :raises Refused: if the console masks fields, because a statement can give a field another name.
    """
    if request.services.settings.masks:
        raise Refused("this console hides fields (--mask), and a statement could show them under other names")


async def _tables(request: ConsoleRequest) -> dict[str, tuple[str, ...]]:
    def ask(opened: Opened) -> dict[str, tuple[str, ...]]:
        return {each.name: tuple(each.columns) for each in opened.queries.views() if each.columns}

    return await request.services.views.ask_cached("tables", ask)


PAGE = Page(
    "/sql",
    "SQL",
    read,
    "sql.html",
    query=(SQL, Field("rows", "Rows at most", kind="number", default=200, least=1, most=1_000), TIMEOUT),
    navigation="SQL",
)
