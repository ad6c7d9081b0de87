"""The rules that select partitions for ``headrace get-offsets``, in the notation of Kafka's tool. No I/O.

====================  =============================================================
``orders:1``          partition 1 of each topic that matches ``orders``
``orders:0-3``        partitions 0, 1, 2
``orders:5-``         from 5 on
``orders:-3``         below 3
``orders``            all
``:0``                partition 0 of every topic
====================  =============================================================

The topic is a regular expression for the whole name. A partition is selected if any rule matches it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from headrace.tools.shared.commands import UsageError
from headrace.tools.shared.topic_names import parse_ids, topic_pattern

_RULE = re.compile("([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
_EVERY = re.compile(".*")


class Rule(NamedTuple):
    """The partitions from ``first`` up to but not including ``end`` (None: no end) of the topics that match."""

    topic: re.Pattern[str]
    first: int = 0
    end: int | None = None

    def matches(self, topic: str, partition: int) -> bool:
        return self.matches_topic(topic) and self.first <= partition and (self.end is None or partition < self.end)

    def matches_topic(self, topic: str) -> bool:
        return self.topic.fullmatch(topic) is not None


def parse_rules(text: str) -> list[Rule]:
    """The rules of ``--topic-partitions``."""
    return [_parse_rule(rule) for rule in text.split(",")]


def _parse_rule(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise UsageError(f"Invalid rule specification: {text}")
    name, one, first, end = match.groups()
    topic = topic_pattern(name) if name else _EVERY
    if one:
        return Rule(topic, int(one), int(one) + 1)
    return Rule(topic, int(first or 0), int(end) if end else None)


def rules_of(topic: str | None, partitions: str | None) -> list[Rule]:
    """The rules of ``--topic`` and ``--partitions``."""
    pattern = topic_pattern(topic) if topic else _EVERY
    if not partitions:
        return [Rule(pattern)]
    complaint = f"--partitions expects a comma separated list of numeric partition ids, but received: {partitions}"
    return [Rule(pattern, index, index + 1) for index in parse_ids(partitions, complaint)]


def matches(rules: Sequence[Rule], topic: str, partition: int) -> bool:
    return any(rule.matches(topic, partition) for rule in rules)
