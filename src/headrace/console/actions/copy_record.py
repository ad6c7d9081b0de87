"""The action that copies a record to another topic: the same bytes of key, value and headers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.topic_fields import OFFSET, PARTITION, TOPIC, wrong_topic_name
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields, ConsoleError, NotFound
from headrace.console.records.batches import MOST_HEADERS, RawRecord
from headrace.console.records.browsing import Browser
from headrace.console.records.changing import send
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest


async def _found(request: ConsoleRequest) -> RawRecord:
    """
    :raises ConsoleError: if there is no such record, or it cannot be copied.
    """
    topic, partition, offset = request.text("topic"), request.number("partition"), request.number("offset")
    count = len((await request.cluster.topic(topic)).partitions)
    if partition >= count:
        raise BadFields({"partition": f"the topic has the partitions 0 to {count - 1}"})
    record = await Browser(request.cluster.fetching, topic).one(partition, offset)
    if record is None:
        raise NotFound(f"there is no record at offset {offset} of {topic}-{partition}")
    if record.problem or record.batch.is_control:
        raise ConsoleError(f"the record cannot be copied: {record.problem or 'it ends a transaction'}")
    if record.header_count > MOST_HEADERS:
        raise ConsoleError(f"the record has {record.header_count} headers; the console copies at most {MOST_HEADERS}")
    return record


async def preview(request: ConsoleRequest) -> Preview:
    record, target = await _found(request), request.text("to_topic")
    count = len((await request.cluster.topic(target)).partitions)
    partition = request.number_or_none("to_partition")
    if partition is not None and partition >= count:
        raise BadFields({"to_partition": f"the topic has the partitions 0 to {count - 1}"})
    return Preview(
        (
            f"The record of {record.size_bytes} bytes is sent to {target}, with the same key, value and headers.",
            "The command below prints the record. headrace console-producer sends what it prints.",
        )
    )


async def run(request: ConsoleRequest) -> Done:
    """Copies one record to another topic. Its offset is a new one; its time too, unless it is kept."""
    record, target = await _found(request), request.text("to_topic")
    await request.cluster.topic(target)
    sent = await send(
        request.cluster,
        target,
        record.value,
        key=record.key,
        partition=request.number_or_none("to_partition"),
        headers=record.headers,
        timestamp_ms=record.timestamp_ms if request.flag("keep_time") and record.timestamp_ms >= 0 else None,
    )
    place: dict[str, object] = {"topic": target, "partition": sent.partition, "offset": sent.offset}
    return Done(
        f"The copy is at offset {sent.offset} of partition {sent.partition} of {target}.",
        link("/topics/{topic}/records/{partition}/{offset}", **place),
    )


def command_line(values: Mapping[str, Value]) -> list[str]:
    words = ["headrace", "console-consumer", "--topic", str(values["topic"])]
    words += ["--partition", str(values["partition"]), "--offset", str(values["offset"]), "--max-messages", "1"]
    for name in ("print.headers", "print.key"):
        words += ["--formatter-property", f"{name}=true"]
    return words


ACTION = Action(
    "copy-record",
    "Copy a record",
    "Copy the record",
    (
        TOPIC,
        PARTITION,
        OFFSET,
        Field("to_topic", "To topic", is_required=True, longest=249, check=wrong_topic_name),
        Field("to_partition", "To partition", kind="number", default=None, least=0, help="empty: the key decides"),
        Field("keep_time", "Keep the time of the record", kind="flag", default=False),
    ),
    run,
    command_line,
    preview,
    section="/topics",
)
