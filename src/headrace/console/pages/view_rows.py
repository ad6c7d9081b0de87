"""The pages of the rows of a view, and of one row with the records of the log that it counts."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.fields import Field
from headrace.console.pages.page import Page
from headrace.console.problems import ConsoleError, Refused
from headrace.console.request import ConsoleRequest
from headrace.console.views.model import VIEW_PATH, LogRecord, Table

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened

_RECORDS_PER_PARTITION = 200
_MOST_RECORDS = 50
ROW_PATH = f"{VIEW_PATH}/row"


@dataclass(frozen=True)
class ViewRows:
    """The first rows of a view.

    :ivar keys: the key of each row as JSON, for the page of the row; empty if the key is not known.
    """

    view: str
    table: Table
    keys: tuple[str, ...]


@dataclass(frozen=True)
class ViewRowPage:
    """One row.

    :ivar records: the newest records before the offsets that the row is as of, which contain the values of its key.
    :ivar records_problem: why the records cannot be shown; empty if they can.
    """

    view: str
    key: str
    table: Table
    records: tuple[LogRecord, ...]
    records_problem: str


async def read_rows(request: ConsoleRequest) -> ViewRows:
    """The first rows of the version that serves, with their keys and the offsets that they are as of."""
    name, limit, masks = request.text("view"), request.number("rows"), request.services.settings.masks

    def ask(opened: Opened) -> ViewRows:
        from headrace.console.views.answers import key_columns, masked, rows_of

        table = rows_of(opened, name, limit)
        version = opened.here.catalog.view(name).serving_version
        columns = None if version is None else key_columns(opened, name, version)
        is_hidden = {each.lower() for each in masks} & {each.lower() for each in columns or ()}
        keys = () if columns is None or is_hidden else _keys(table, columns)
        return ViewRows(name, masked(table, masks), keys)

    return await request.services.views.ask(ask)


def _keys(table: Table, columns: tuple[str, ...]) -> tuple[str, ...]:
    places = [table.columns.index(name) for name in columns if name in table.columns]
    if len(places) < len(columns):
        return ()
    return tuple(json.dumps({table.columns[at]: row[at] for at in places}, ensure_ascii=False) for row in table.rows)


async def read_row(request: ConsoleRequest) -> ViewRowPage:
    """One row of a view, the offsets that it is as of, and the newest records that contain the values of its key."""
    name, key, masks = request.text("view"), request.text("key"), request.services.settings.masks

    def ask(opened: Opened) -> Table:
        from headrace.console.views.answers import masked, row_with_key

        if masks:
            _check_key(opened, name, key, masks)
        return masked(row_with_key(opened, name, key), masks)

    def records(opened: Opened) -> tuple[LogRecord, ...]:
        from headrace.console.views.answers import read_key
        from headrace.console.views.log_records import newest_before

        offsets = [at for each in table.as_of for at in each.offsets]
        found = newest_before(opened.here.project, offsets, _RECORDS_PER_PARTITION, masks)
        values = [str(value) for value in read_key(key).values() if value is not None]
        return tuple(each for each in found if all(value in each.key + each.value for value in values))[:_MOST_RECORDS]

    table = await request.services.views.ask(ask)
    try:
        return ViewRowPage(name, key, table, await request.services.views.ask(records), "")
    except ConsoleError as error:
        return ViewRowPage(name, key, table, (), str(error))


def _check_key(opened: Opened, view: str, key: str, masks: Collection[str]) -> None:
    """
    :raises Refused: if the key could be used to guess a value that is hidden, by whether there is such a row.
    """
    from headrace.console.views.answers import key_columns, read_key

    version = opened.here.catalog.view(view).serving_version
    known = {each.lower() for each in (version and key_columns(opened, view, version)) or ()}
    given = {each.lower() for each in read_key(key)}
    if given != known or given & {each.lower() for each in masks}:
        raise Refused("this console hides fields (--mask): a row is found by its whole key only, if no part is hidden")


ROWS_PAGE = Page(
    f"{VIEW_PATH}/rows",
    "Rows of {view}",
    read_rows,
    "view_rows.html",
    query=(Field("rows", "Rows", kind="number", default=100, least=1, most=1_000),),
    section="/views",
)
ROW_PAGE = Page(
    ROW_PATH,
    "Row of {view}",
    read_row,
    "view_row.html",
    query=(Field("key", default="{}", longest=10_000, help="a JSON object: the values of the key by column"),),
    section="/views",
)
