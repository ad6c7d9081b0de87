"""Sends the whole answer of a statement as a file: CSV, or an Arrow stream if pyarrow is installed.

The answer is of one snapshot and goes through a file, so the memory of the console does not grow with it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from headrace.console.body import read_query
from headrace.console.fields import Field, read_fields
from headrace.console.pages.sql import SQL, TIMEOUT, check_may_ask
from headrace.console.problems import BadFields
from headrace.console.request import ConsoleRequest
from headrace.console.services import Services
from headrace.console.visitors import session_of

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened
    from headrace.pipeline.serving.queries.large_answers import LargeAnswer

MOST_ROWS = 10_000_000
_FILES = {"csv": "answer.csv", "arrow": "answer.arrows"}
_FIELDS = (
    SQL,
    TIMEOUT,
    Field("format", kind="choice", choices=tuple(_FILES), default="csv"),
    Field("rows", "Rows at most", kind="number", default=1_000_000, least=1, most=MOST_ROWS),
)


class ViewAnswers:
    """Answers requests for downloads."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def download(self, request: Request) -> Response:
        session = await session_of(self._services, request)
        asked = ConsoleRequest(read_fields(_FIELDS, read_query(request)), session, self._services)
        form = asked.text("format")
        if not asked.text("sql").strip():
            raise BadFields({"sql": "give a statement"})
        if form == "arrow" and find_spec("pyarrow") is None:
            raise BadFields({"format": "pyarrow is not installed where the console runs; take csv"})
        check_may_ask(asked)
        found = await self._services.views.ask(lambda opened: _answer(opened, asked))

        from headrace.pipeline.serving.http.answers import LargeResponse

        response = LargeResponse(found, form)
        response.headers["content-disposition"] = f'attachment; filename="{_FILES[form]}"'
        return response


def _answer(opened: Opened, asked: ConsoleRequest) -> LargeAnswer:
    answer = opened.answers.arrow if asked.text("format") == "arrow" else opened.answers.csv
    return answer(asked.text("sql"), limit=asked.number("rows"), timeout_ms=asked.number("timeout_ms"))
