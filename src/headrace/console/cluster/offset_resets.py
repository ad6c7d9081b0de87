"""Decides the new offsets of a group, in the seven ways of ``headrace consumer-groups --reset-offsets``.

============  =======================================================================================
``earliest``  the first record of the partition
``latest``    the end of the partition
``current``   the committed offset; the end, if the group has committed none
``offset``    an offset
``shift``     a number of records later, earlier if negative; the group must have a committed offset
``datetime``  the first record at or after a time; the end, if there is none
``duration``  the same for a duration before now
============  =======================================================================================

The new offset is always within the partition. A group with members is refused: a member would overwrite the offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.client.admin.async_admin import AsyncAdmin
from headrace.client.errors import ErrorCode, UnknownGroup, error_for
from headrace.client.offset_reset import parse_duration_ms
from headrace.client.types import TopicPartition

WAYS = ("earliest", "latest", "current", "offset", "shift", "datetime", "duration")
#: The ways that need a value, with what the value is.
NEEDS_VALUE = {
    "offset": "an offset",
    "shift": "a number of records",
    "datetime": "a time, YYYY-MM-DDThh:mm:ss",
    "duration": "a duration, such as P1DT2H30M",
}
_INACTIVE = ("Empty", "Dead", "")


@dataclass(frozen=True)
class Reset:
    """How to reset. ``number`` is an offset, a distance, or a time in ms."""

    way: str
    number: int = 0

    @property
    def needs_time(self) -> bool:
        return self.way in ("datetime", "duration")


@dataclass(frozen=True)
class Place:
    """The facts about a partition.

    :ivar at_time: the first record at or after the wanted time; -1 if there is none.
    """

    first: int
    end: int
    committed: int | None
    at_time: int = -1


@dataclass(frozen=True)
class NewOffset:
    """The new offset of a partition.

    :ivar wanted: the offset before it was moved into the partition.
    """

    before: int | None
    after: int
    wanted: int


def read_reset(way: str, value: str, now_ms: int) -> Reset:
    """
    :raises ValueError: with what is wrong with the value.
    """
    if way not in NEEDS_VALUE:
        if value:
            raise ValueError(f"{way} takes no value")
        return Reset(way)
    if not value:
        raise ValueError(f"give {NEEDS_VALUE[way]}")
    if way == "datetime":
        return Reset(way, _time_ms(value))
    if way == "duration":
        return Reset(way, max(0, now_ms - parse_duration_ms(value)))
    digits = value.strip().removeprefix("-" if way == "shift" else "")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 19):
        raise ValueError(f"{value[:100]!r} is not {NEEDS_VALUE[way]}")
    number = int(value)
    return Reset(way, number)


def _time_ms(text: str) -> int:
    at = datetime.fromisoformat(text)
    if "T" not in text:
        raise ValueError(f"{text!r} has no time of day: write YYYY-MM-DDThh:mm:ss, with a time zone or in UTC")
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def new_offset(reset: Reset, place: Place) -> NewOffset:
    """
    :raises ValueError: if the way needs a committed offset and there is none.
    """
    wanted = _wanted(reset, place)
    return NewOffset(place.committed, min(max(wanted, place.first), place.end), wanted)


def _wanted(reset: Reset, place: Place) -> int:
    match reset.way:
        case "earliest":
            return place.first
        case "latest":
            return place.end
        case "current":
            return place.end if place.committed is None else place.committed
        case "offset":
            return reset.number
        case "shift":
            if place.committed is None:
                raise ValueError("there is no committed offset to shift")
            return place.committed + reset.number
    return place.end if place.at_time < 0 else place.at_time


async def plan_reset(
    admin: AsyncAdmin, group: str, reset: Reset, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, NewOffset]:
    """Returns the new offset of each partition, and changes nothing.

    :param partitions: None: all partitions that the group has committed offsets of.
    :raises GroupNotEmpty: if the group has members.
    :raises ValueError: if a partition has no committed offset to shift.
    """
    await _check_inactive(admin, group)
    committed = await admin.list_group_offsets(group)
    wanted = sorted(committed if partitions is None else partitions)
    if not wanted:
        return {}
    first = (await admin.list_offsets(dict.fromkeys(wanted, "earliest"))).all()
    end = (await admin.list_offsets(dict.fromkeys(wanted, "latest"))).all()
    at_time = (await admin.list_offsets(dict.fromkeys(wanted, reset.number))).all() if reset.needs_time else {}
    found: dict[TopicPartition, NewOffset] = {}
    for at in wanted:
        place = Place(
            first[at].offset,
            end[at].offset,
            committed[at].offset if at in committed else None,
            at_time[at].offset if at in at_time else -1,
        )
        try:
            found[at] = new_offset(reset, place)
        except ValueError as error:
            raise ValueError(f"{at}: {error}") from None
    return found


async def _check_inactive(admin: AsyncAdmin, group: str) -> None:
    try:
        state = (await admin.describe_group(group)).state
    except UnknownGroup:
        return
    if state not in _INACTIVE:
        raise error_for(
            ErrorCode.non_empty_group, f"the group {group!r} is {state}, and its members would commit again"
        )
