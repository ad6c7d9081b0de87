"""The action that sends a record to a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.topic_fields import TOPIC
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields
from headrace.console.records.batches import HeaderPairs
from headrace.console.records.changing import FORMS, read_headers, send, wrong_headers
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest

_LONGEST = 2_000_000
_NULL = "NULL"


class _NewRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs


def _record(values: Mapping[str, Value]) -> _NewRecord:
    """
    :raises BadFields: if the key or the value is not in the form that was chosen.
    """
    found: dict[str, bytes | None] = {}
    problems: dict[str, str] = {}
    for name in ("key", "value"):
        text = str(values[name])
        try:
            # A key that was left empty is no key.
            is_left_out = name == "key" and not text
            found[name] = None if is_left_out else FORMS[str(values[f"{name}_form"])](text)
        except ValueError as error:
            problems[name] = str(error)
    if problems:
        raise BadFields(problems, {name: "" if each is None else str(each) for name, each in values.items()})
    return _NewRecord(found["key"], found["value"], read_headers(str(values["headers"])))


async def preview(request: ConsoleRequest) -> Preview:
    topic, partition = request.text("topic"), request.number_or_none("partition")
    record = _record(request.values)
    count = len((await request.cluster.topic(topic)).partitions)
    if partition is not None and partition >= count:
        raise BadFields({"partition": f"the topic has the partitions 0 to {count - 1}"})
    where = "the partition that its key decides" if partition is None else f"partition {partition}"
    size = sum(len(each) for each in (record.key, record.value) if each is not None)
    line, problem = _line(record)
    if partition is not None and not problem:
        problem = "console-producer cannot choose the partition"
    sentences = [f"A record of {size} bytes goes to {where} of {topic}. Nobody can take it back."]
    if problem:
        sentences.append(f"The command below does not send the same record: {problem}.")
    return Preview(tuple(sentences), standard_input=line)


def _line(record: _NewRecord) -> tuple[str, str]:
    """The line that console-producer reads, and why it does not make the same record."""
    try:
        texts = [_NULL if each is None else each.decode() for each in (record.key, record.value)]
        headers = ",".join(f"{name}:{(value or b'').decode()}" for name, value in record.headers)
    except UnicodeDecodeError:
        return "", "it reads only text"
    parts = [headers, *texts]
    is_split = any("\n" in each or "\t" in each for each in parts) or (len(record.headers) > 0) != (":" in headers)
    return "\t".join(parts), "a line break or a tab would end a part of it" if is_split else ""


async def run(request: ConsoleRequest) -> Done:
    """Sends one record. ``key_form`` and ``value_form`` say how the texts become bytes; json is checked only."""
    topic, record = request.text("topic"), _record(request.values)
    sent = await send(
        request.cluster,
        topic,
        record.value,
        key=record.key,
        partition=request.number_or_none("partition"),
        headers=record.headers,
    )
    place = link("/topics/{topic}/records/{partition}/{offset}", topic=topic, **_place(sent.partition, sent.offset))
    return Done(f"The record is at offset {sent.offset} of partition {sent.partition}.", place)


def _place(partition: int, offset: int) -> dict[str, object]:
    return {"partition": partition, "offset": offset}


def command_line(values: Mapping[str, Value]) -> list[str]:
    """The record is what the command reads from standard input; the preview has it."""
    words = ["headrace", "console-producer", "--topic", str(values["topic"])]
    for each in ("parse.headers=true", "parse.key=true", f"null.marker={_NULL}"):
        words += ["--reader-property", each]
    return words


_FORMS = tuple(FORMS)
ACTION = Action(
    "produce-record",
    "Send a record",
    "Send the record",
    (
        TOPIC,
        Field("key", kind="long_text", longest=_LONGEST, help="empty: no key", is_data=True),
        Field("key_form", "The key is", kind="choice", choices=_FORMS, default="text"),
        Field("value", kind="long_text", longest=_LONGEST, is_data=True),
        Field(
            "value_form", "The value is", kind="choice", choices=_FORMS, default="text",
            help="json is checked before it is sent; null deletes the key of a compacted topic",
        ),
        Field(
            "headers", kind="long_text", longest=100_000, check=wrong_headers, help="one NAME=VALUE per line",
            is_data=True,
        ),
        Field("partition", kind="number", default=None, least=0, most=2**31 - 1, help="empty: the key decides"),
    ),
    run,
    command_line,
    preview,
    section="/topics",
)  # fmt: skip
