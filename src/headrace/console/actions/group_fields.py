"""Holds the fields that several actions on groups have, and reads which partitions they name."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.client.types import TopicPartition
from headrace.console.fields import Field
from headrace.console.problems import BadFields
from headrace.console.request import ConsoleRequest

LONGEST_NAME = 1_000


def wrong_numbers(text: str) -> str:
    """Returns what is wrong with numbers that commas separate; empty if nothing is."""
    try:
        read_numbers(text)
    except ValueError as error:
        return str(error)
    return ""


def read_numbers(text: str) -> list[int]:
    """Reads ``0,1,2``.

    :raises ValueError: if the text is something else, or has a number twice.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise ValueError("write numbers with commas between them, such as 0,1,2")
    numbers = [int(part) for part in parts]
    if len(set(numbers)) < len(numbers):
        raise ValueError("a number is given twice")
    return numbers


def texts(request: ConsoleRequest) -> dict[str, str]:
    """The values as a form has them, for an error beside its input."""
    return {name: "" if value is None else str(value) for name, value in request.values.items()}


async def named_partitions(request: ConsoleRequest, topic: str, numbers: Iterable[int]) -> list[TopicPartition]:
    """The partitions of a topic with these numbers; without numbers, all.

    :raises BadFields: if one does not exist.
    """
    there = {each.partition for each in (await request.cluster.topic(topic)).partitions}
    wanted = sorted(set(numbers) or there)
    if missing := [number for number in wanted if number not in there]:
        raise BadFields({"partitions": f"the topic has no partition {missing[0]}"}, texts(request))
    return [TopicPartition(topic, number) for number in wanted]


#: The group that the page is about.
GROUP = Field("group", is_required=True, longest=LONGEST_NAME, is_fixed=True)
PARTITIONS = Field(
    "partitions", check=wrong_numbers, help="numbers with commas between them; empty: all partitions of the topic"
)
