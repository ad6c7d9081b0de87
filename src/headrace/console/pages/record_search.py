"""The page that searches the records of a topic. The search runs on the server; the page follows it live."""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_hex

from headrace.console.fields import Field
from headrace.console.pages.page import Page
from headrace.console.pages.record_fields import (
    KEY_FORMAT,
    VALUE_FORMAT,
    check_known,
    offsets_at,
    offsets_field,
    partition_ends,
)
from headrace.console.problems import BadFields
from headrace.console.records.browsing import read_offsets, write_offsets
from headrace.console.records.criteria import FIELDS, MOST_RESULTS, MOST_SECONDS, Criteria, criteria_of
from headrace.console.records.matching import Matcher
from headrace.console.records.rows import RecordRow, row_of
from headrace.console.records.search import Search, ranges_of
from headrace.console.records.searches import FollowedSearch
from headrace.console.request import ConsoleRequest

#: A page waits this long, so that it shows the result of a quick search at once. A program waits for the end.
_PAGE_WAITS_SECONDS, _PROGRAM_WAITS_SECONDS = 0.7, 55.0
_NOT_PART_OF_THE_SEARCH = ("go", "stop")


@dataclass(frozen=True)
class RecordSearch:
    """A search, and what it has found so far.

    :ivar state: ``not started``, ``running``, ``complete``, ``enough found``, ``time is up``, ``stopped``, ``failed``.
    :ivar percent: how much of the wanted offsets was read.
    :ivar unreadable_batches: batches that are damaged; nothing was searched in them.
    :ivar following: the value of ``positions`` to search on; empty if all was searched.
    :ivar next_run: a value of ``run`` for another search.
    """

    topic: str
    state: str
    scanned_records: int
    scanned_bytes: int
    percent: float
    records_per_second: float
    seconds: float
    found: int
    unreadable_batches: int
    problem: str
    following: str
    next_run: str
    records: tuple[RecordRow, ...]

    @property
    def is_running(self) -> bool:
        return self.state == "running"


async def read(request: ConsoleRequest) -> RecordSearch:
    """Searches all partitions of a topic. ``go`` starts the search; a program gets the answer at its end."""
    topic = request.text("topic")
    if not request.flag("go"):
        await request.cluster.topic(topic)
        return RecordSearch(topic, "not started", 0, 0, 0.0, 0.0, 0.0, 0, 0, "", "", token_hex(4), ())
    searches, session = request.services.records.searches, request.session
    is_kept = request.services.sessions.find(session.id) is not None
    values = tuple(item for item in sorted(request.values.items()) if item[0] not in _NOT_PART_OF_THE_SEARCH)
    key = (session.id, values)
    followed = searches.find(key)
    if followed is None:
        searches.check_room(session.id)
        followed = searches.begin(key, await _new(request))
    if request.flag("stop"):
        followed.search.stop()
    try:
        await followed.wait(_PAGE_WAITS_SECONDS if is_kept else _PROGRAM_WAITS_SECONDS)
    finally:
        if not is_kept:
            followed.search.stop()
            searches.forget(key)
    return _shown(topic, followed)


async def _new(request: ConsoleRequest) -> FollowedSearch:
    search = await new_search(request, most_records=request.number("results"))
    decoder, formats = request.services.records.decoder, (request.text("key_format"), request.text("value_format"))
    return FollowedSearch(request.session.id, search, lambda record: row_of(record, decoder, *formats))


async def new_search(request: ConsoleRequest, most_records: int) -> Search:
    """The search that the fields ask for.

    :raises BadFields: if they cannot be used.
    """
    criteria = read_criteria(request)
    ends = await partition_ends(request)
    starts = check_known(read_offsets(request.text("positions")), ends, "positions")
    if criteria.from_ms is not None and not starts:
        at_time = await offsets_at(request, list(ends), criteria.from_ms)
        starts = {number: at_time.get(number, end.end_offset or 0) for number, end in ends.items()}
    return Search(
        request.cluster.fetching,
        request.text("topic"),
        ranges_of(ends, starts, criteria),
        Matcher(criteria, request.services.records.decoder),
        most_records=most_records,
        seconds=request.number("seconds"),
    )


def read_criteria(request: ConsoleRequest) -> Criteria:
    try:
        return criteria_of(request.values)
    except ValueError as error:
        raise BadFields({"text": str(error)}) from None


def _shown(topic: str, followed: FollowedSearch) -> RecordSearch:
    search = followed.search
    state = "failed" if followed.problem else "running" if followed.is_running else search.state
    total = search.offsets
    is_whole = state in ("running", "complete")
    return RecordSearch(
        topic,
        state,
        search.scanned_records,
        search.scanned_bytes,
        100.0 * search.offsets_done / total if total else 100.0,
        search.scanned_records / search.took_seconds if search.took_seconds else 0.0,
        search.took_seconds,
        len(followed.rows),
        search.unreadable,
        followed.problem,
        "" if is_whole else write_offsets(search.positions),
        token_hex(4),
        tuple(followed.rows),
    )


#: The fields that say what is searched, and how long.
SEARCH_FIELDS = (
    *FIELDS,
    Field("seconds", "Seconds at most", kind="number", default=60, least=1, most=MOST_SECONDS),
    offsets_field("positions", "where each partition goes on, from an earlier search"),
)
PAGE = Page(
    "/topics/{topic}/search",
    "Search {topic}",
    read,
    "record_search.html",
    query=(
        *SEARCH_FIELDS,
        Field("results", "Records at most", kind="number", default=100, least=1, most=MOST_RESULTS),
        KEY_FORMAT,
        VALUE_FORMAT,
        Field("go", kind="flag", default=False, help="starts the search"),
        Field("run", longest=40, help="a text of your own: another one makes the same search run again"),
        Field("stop", kind="flag", default=False, help="stops the search"),
    ),
    section="/topics",
    live_seconds=0.5,
)
