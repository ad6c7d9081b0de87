"""Reads what an HTTP request asks for: the statement, its limits, and the form of the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request

from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.queries.query import DEFAULT_LIMIT, DEFAULT_TIMEOUT_MS

#: The rows of an answer, or of a page of one, that is held in memory.
MAX_LIMIT = 100_000
MAX_TIMEOUT_MS = 300_000
ARROW, CSV, JSON = "arrow", "csv", "json"
MEDIA_TYPES = {ARROW: "application/vnd.apache.arrow.stream", CSV: "text/csv"}
COMPRESSIONS = ("none", "lz4", "zstd")
#: A limit that no database reaches.
_MOST_ROWS = 10**15
_MAX_BODY_BYTES = 1 << 20
_MAX_TOKEN_CHARACTERS = 100


class BadRequest(ServingError):
    """The HTTP request is wrong."""


@dataclass(frozen=True)
class QueryRequest:
    """
    :param sql: empty if ``page`` is given.
    :param limit: None for all rows.
    :param page_size: None if the answer comes in one piece.
    :param page: the token of a page; empty for the first one.
    :param same_offsets: refuse an answer whose views count other records of a common topic.
    """

    sql: str
    form: str
    limit: int | None
    timeout_ms: int
    compression: str | None
    page_size: int | None
    page: str
    same_offsets: bool


async def query_request(request: Request) -> QueryRequest:
    """
    :raises BadRequest: if a parameter is missing or wrong.
    """
    parameters = await _parameters(request)
    form = _form(request, parameters)
    page = parameters.get("page", "")
    if not isinstance(page, str) or len(page) > _MAX_TOKEN_CHARACTERS:
        raise BadRequest("page must be the token that came with the page before")
    is_paged = bool(page) or "page_size" in parameters
    if is_paged and form == ARROW:
        raise BadRequest("an answer in Arrow has no pages: use limit=all, and read it batch by batch")
    if is_paged and "limit" in parameters:
        raise BadRequest("give page_size or limit, not both; a limit of all pages together is LIMIT in the statement")
    sql = parameters.get("sql", "")
    if not isinstance(sql, str) or not (sql or page):
        raise BadRequest('sql is missing: use GET /query?sql=SELECT..., or POST {"sql": "SELECT ..."}')
    if sql and page:
        raise BadRequest("give sql for the first page, and only page for the next ones")
    page_size = _number(parameters, "page_size", DEFAULT_LIMIT, MAX_LIMIT) if is_paged else None
    timeout_ms = _number(parameters, "timeout_ms", DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS)
    return QueryRequest(
        sql, form, _limit(parameters, form), timeout_ms, _compression(parameters, form), page_size, page,
        _flag(parameters, "same_offsets"),
    )  # fmt: skip


def _flag(parameters: Mapping[str, object], name: str) -> bool:
    """``true`` or ``false``, as a text or as a value of JSON."""
    text = str(parameters.get(name, False)).lower()
    if text not in ("true", "false"):
        raise BadRequest(f"{name} must be true or false, not {text[:40]!r}")
    return text == "true"


async def _parameters(request: Request) -> dict[str, object]:
    if request.method != "POST":
        return dict(request.query_params)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise HTTPException(413, f"the body of a request has at most {_MAX_BODY_BYTES} bytes")
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise BadRequest('the body must be an object: {"sql": "SELECT ..."}')
    return {**request.query_params, **parsed}


def _form(request: Request, parameters: Mapping[str, object]) -> str:
    form = parameters.get("format")
    if form is None:
        accepted = request.headers.get("accept", "")
        return next((name for name, kind in MEDIA_TYPES.items() if kind in accepted), JSON)
    if not isinstance(form, str) or form not in (JSON, CSV, ARROW):
        raise BadRequest(f"format must be json, csv or arrow, not {str(form)[:40]!r}")
    return form


def _limit(parameters: Mapping[str, object], form: str) -> int | None:
    if form == JSON:
        if parameters.get("limit") == "all":
            raise BadRequest("limit=all needs format=arrow or format=csv; JSON comes in pages: use page_size")
        return _number(parameters, "limit", DEFAULT_LIMIT, MAX_LIMIT)
    return None if parameters.get("limit") == "all" else _number(parameters, "limit", DEFAULT_LIMIT, _MOST_ROWS)


def _compression(parameters: Mapping[str, object], form: str) -> str | None:
    found = parameters.get("compression", "none")
    if found not in COMPRESSIONS:
        raise BadRequest(f"compression must be {', '.join(COMPRESSIONS)}, not {str(found)[:40]!r}")
    if found != "none" and form != ARROW:
        raise BadRequest("compression needs format=arrow")
    return None if found == "none" else str(found)


def _number(parameters: Mapping[str, object], name: str, default: int, most: int) -> int:
    given = parameters.get(name, default)
    text = str(given)
    if isinstance(given, bool) or not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:20]) <= most:
        raise BadRequest(f"{name} must be a number from 1 to {most}, not {text[:40]!r}")
    return int(text)
