"""Parses names and ids of topics in command lines and files. No I/O."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from uuid import UUID

from headrace.client.types import TopicPartition
from headrace.tools.shared.commands import UsageError, int32


def topic_pattern(text: str) -> re.Pattern[str]:
    """The pattern of ``--topic``: a regular expression for the whole name, or several separated by commas."""
    alternatives = text.strip().strip("'\"").replace(",", "|").replace(" ", "")
    try:
        return re.compile(f"(?:{alternatives})")
    except re.error as error:
        raise UsageError(f"{text} is an invalid regex: {error}") from None


def matching(names: Iterable[str], pattern: re.Pattern[str] | None) -> list[str]:
    return sorted(name for name in names if pattern is None or pattern.fullmatch(name))


def topic_id_text(topic_id: UUID | None) -> str:
    """A topic id in Kafka's notation: base64 with - and _, 22 characters."""
    return "" if topic_id is None else urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def parse_topic_id(text: str) -> UUID:
    try:
        return UUID(bytes=urlsafe_b64decode(text + "=="))
    except ValueError:
        raise UsageError(f"{text} is not a topic id: an id has 22 characters, as --describe shows it") from None


def parse_topic_partitions(text: str) -> tuple[str, list[int] | None]:
    """Parses a topic with some of its partitions, ``orders:0,1``; ``orders`` alone gives None, which means all."""
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not numbers):
        raise UsageError(f"Invalid topic arg '{text}', expected topic name and partitions")
    if not colon:
        return topic, None
    return topic, parse_ids(numbers, f"Invalid partition in topic arg '{text}'")


def parse_ids(text: str, complaint: str) -> list[int]:
    """Parses numbers separated by commas: broker ids, or partitions."""
    try:
        return [int32(number) for number in text.split(",")]
    except ValueError:
        raise UsageError(f"{complaint}: write numbers separated by commas") from None
    except ArgumentTypeError as error:
        raise UsageError(f"{complaint}: {error}") from None


def partition_names(partitions: Iterable[TopicPartition]) -> str:
    """``a-0,a-1``, sorted."""
    return ",".join(map(str, sorted(partitions)))
