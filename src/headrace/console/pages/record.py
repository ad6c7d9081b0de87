"""The page of one record: its whole key, value and headers, its batch, and the record before and behind."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.pages.page import Page
from headrace.console.pages.record_fields import KEY_FORMAT, VALUE_FORMAT, partition_ends
from headrace.console.pages.views import status_of
from headrace.console.problems import BadFields, ConsoleError, NotFound
from headrace.console.records.batches import RawRecord
from headrace.console.records.browsing import Browser
from headrace.console.records.rows import ALONE, RecordRow, row_of
from headrace.console.request import ConsoleRequest
from headrace.console.views.model import RecordView

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened


@dataclass(frozen=True)
class OneRecord:
    """A record. Its texts are cut at 10,000 characters; the downloads have all.

    :ivar previous_offset, next_offset: None at the ends of the partition.
    :ivar views: the views that read the topic, if the console has a project.
    :ivar views_problem: why the views cannot be shown; empty if they can.
    """

    topic: str
    record: RecordRow
    previous_offset: int | None
    next_offset: int | None
    views: tuple[RecordView, ...] = ()
    views_problem: str = ""


async def read(request: ConsoleRequest) -> OneRecord:
    """One record, with the details of the batch that it was sent in."""
    topic, partition, offset = request.text("topic"), *place_of(request)
    request = ConsoleRequest({**request.values, "partition": partition}, request.session, request.services)
    end = (await partition_ends(request))[partition]
    first, stop = end.first_offset or 0, end.end_offset or 0
    if not first <= offset < stop:
        raise NotFound(f"partition {partition} of {topic} has the offsets {first} to {stop - 1}, so not {offset}")
    found = await Browser(request.cluster.fetching, topic).one(partition, offset)
    if found is None:
        raise NotFound(f"there is no record at offset {offset}: the topic was compacted, or an offset was never used")
    decoder, formats = request.services.records.decoder, (request.text("key_format"), request.text("value_format"))
    views, problem = await _views(request, (topic, partition, offset), found)
    return OneRecord(
        topic,
        await asyncio.to_thread(row_of, found, decoder, *formats, ALONE),
        offset - 1 if offset > first else None,
        offset + 1 if offset + 1 < stop else None,
        views,
        problem,
    )


async def _views(
    request: ConsoleRequest, place: tuple[str, int, int], record: RawRecord
) -> tuple[tuple[RecordView, ...], str]:
    project, settings = request.services.views, request.services.settings
    if project.folder is None or settings.needs_login or record.batch.is_control:
        return (), ""
    decoder = request.services.records.decoder

    def ask(opened: Opened) -> tuple[RecordView, ...]:
        from headrace.console.views.record_views import views_of_record

        documents = [each.content for each in map(decoder.document, (record.value, record.key)) if each is not None]
        return views_of_record(opened, status, place, documents, settings.masks)

    try:
        status = await status_of(request)
        return await project.ask(ask), ""
    except ConsoleError as error:
        return (), str(error)


def place_of(request: ConsoleRequest) -> tuple[int, int]:
    """The partition and the offset of the path.

    :raises BadFields: if they are no numbers.
    """
    texts = {name: request.text(name) for name in ("partition", "offset")}
    bad = {name: "it is not a whole number" for name, text in texts.items() if not _is_number(text)}
    if bad:
        raise BadFields(bad)
    return int(texts["partition"]), int(texts["offset"])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


PAGE = Page(
    "/topics/{topic}/records/{partition}/{offset}",
    "Record {offset} of {topic}-{partition}",
    read,
    "record.html",
    query=(KEY_FORMAT, VALUE_FORMAT),
    section="/topics",
)
