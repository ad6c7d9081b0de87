"""The action that sends a dead letter to the topic that it came from, as it was or with another value.

The record goes to its own partition, with its key, its time and its own headers. The record at its first place stays:
a version that decodes it counts both. So the usual use is a value that was corrected by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.copy_record import command_line
from headrace.console.actions.topic_fields import OFFSET, PARTITION, TOPIC
from headrace.console.actions.view_fields import VIEW
from headrace.console.fields import Field
from headrace.console.problems import NotFound, Refused
from headrace.console.records.batches import HeaderPairs, RawRecord
from headrace.console.records.browsing import Browser
from headrace.console.records.changing import send
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest

if TYPE_CHECKING:
    from headrace.console.views.model import VersionDefinition
    from headrace.console.views.opened import Opened

_PREFIX = "headrace."
_LONGEST_VALUE = 1_000_000


@dataclass(frozen=True)
class _Letter:
    """A dead letter.

    :ivar notes: the headers that say why it is a dead letter, without their prefix.
    :ivar headers: those that the record had.
    """

    record: RawRecord
    notes: Mapping[str, str]
    headers: HeaderPairs

    @property
    def place(self) -> tuple[str, int]:
        return self.notes["topic"], int(self.notes["partition"])


async def _letter(request: ConsoleRequest) -> _Letter:
    """
    :raises ConsoleError: if there is no such dead letter of the view, or it does not have the whole record.
    """
    topic, partition, offset = request.text("topic"), request.number("partition"), request.number("offset")
    record = await Browser(request.cluster.fetching, topic).one(partition, offset)
    if record is None or record.problem or record.batch.is_control:
        raise NotFound(f"there is no record at offset {offset} of {topic}-{partition}")
    notes = {
        name.removeprefix(_PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(_PREFIX)
    }
    own = tuple(header for header in record.headers if not header[0].startswith(_PREFIX))
    if not {"reason", "view", "topic", "partition", "offset"} <= notes.keys() or not _is_number(notes["partition"]):
        raise Refused("the record is no dead letter: it does not have the headers of one")
    if "left_out" in notes:
        raise Refused("the dead letter does not have the value, which was too large; read it at its first place")
    if record.header_count > len(record.headers):
        raise Refused(f"the record has {record.header_count} headers, which are too many for the console")
    await _check_source(request, topic, notes["topic"])
    return _Letter(record, notes, own)


async def _check_source(request: ConsoleRequest, dead_letters: str, source: str) -> None:
    """Anybody who may write to the dead-letter topic could name another topic in the headers."""
    view = request.text("view")

    def ask(opened: Opened) -> tuple[VersionDefinition, ...]:
        from headrace.console.views.definitions import read_definitions

        return read_definitions(opened, view)

    definitions = await request.services.views.ask(ask)
    if not any(dead_letters in each.dead_letter_topics and source in each.topics for each in definitions):
        raise Refused(f"{view} does not send dead letters of {source} to {dead_letters}")


async def preview(request: ConsoleRequest) -> Preview:
    letter = await _letter(request)
    topic, partition = letter.place
    # A reason may contain a part of the record.
    reason = request.services.records.decoder.masked_text(letter.notes["reason"])
    value = "the value above" if request.text("value") else "the same value"
    return Preview(
        (
            f"It is a dead letter because of: {reason[:500]}",
            f"A record with {value} is sent to partition {partition} of {topic}, with its key, time and headers.",
            f"The record at offset {letter.notes['offset']} stays: a version that decodes it counts both.",
            "The command below prints the dead letter. headrace console-producer sends what it prints.",
        )
    )


async def run(request: ConsoleRequest) -> Done:
    """Sends a dead letter to the topic and partition that it came from."""
    letter = await _letter(request)
    topic, partition = letter.place
    at_ms = letter.notes.get("timestamp", "")
    sent = await send(
        request.cluster,
        topic,
        request.text("value").encode() or letter.record.value,
        key=letter.record.key,
        partition=partition,
        headers=letter.headers,
        timestamp_ms=int(at_ms) if _is_number(at_ms) else None,
    )
    return Done(
        f"The record is at offset {sent.offset} of partition {sent.partition} of {topic}.",
        link("/topics/{topic}/records/{partition}/{offset}", topic=topic, partition=sent.partition, offset=sent.offset),
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 16


ACTION = Action(
    "replay-dead-letter",
    "Send a dead letter again",
    "Send it again",
    (
        VIEW,
        TOPIC,
        PARTITION,
        OFFSET,
        Field(
            "value", kind="long_text", longest=_LONGEST_VALUE, is_data=True, help="the corrected value; empty: the same"
        ),
    ),
    run,
    command_line,
    preview,
    section="/views",
)
