"""Decides which topics of the source are mirrored, and their names at the target. No I/O.

A pattern must match the whole name; a comma means "or", as in Kafka's own tool. A topic that is renamed is mirrored
even if it is not included. Internal topics of Kafka and topics of a mirror are never mirrored. If names get a prefix,
topics that have the prefix already are not mirrored: if both sides are one cluster, they would be mirrored again and
again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

#: The prefix of what a mirror keeps at the target: its topic of offset syncs, and the group of its positions.
OWN_PREFIX = "headrace-mirror."


class NamesClash(ValueError):
    """Two topics of the source would have the same name at the target."""


class TopicNames:
    """The rules for topic names.

    :raises ValueError: if a pattern is not a regular expression.
    """

    def __init__(
        self, include: str | None, exclude: str | None, renames: Mapping[str, str] | None = None, prefix: str = ""
    ) -> None:
        self._include = None if include is None else topic_pattern(include)
        self._exclude = None if exclude is None else topic_pattern(exclude)
        self._renames = dict(renames or {})
        self._prefix = prefix

    def target_of(self, topic: str) -> str | None:
        """Returns the name at the target; None if the topic is not mirrored."""
        if topic.startswith(("__", OWN_PREFIX)):
            return None
        if self._exclude is not None and self._exclude.fullmatch(topic):
            return None
        if topic in self._renames:
            return self._renames[topic]
        if self._include is None or not self._include.fullmatch(topic):
            return None
        if self._prefix and topic.startswith(self._prefix):
            return None
        return self._prefix + topic

    def plan(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the name at the target of each topic that is mirrored.

        :raises NamesClash: if two topics have the same name at the target.
        """
        plan: dict[str, str] = {}
        sources: dict[str, str] = {}
        for topic in sorted(topics):
            target = self.target_of(topic)
            if target is None:
                continue
            if target in sources:
                raise NamesClash(f"{sources[target]} and {topic} would both have the name {target} at the target")
            plan[topic], sources[target] = target, topic
        return plan


def topic_pattern(text: str) -> re.Pattern[str]:
    """
    :raises ValueError: if the text is not a regular expression.
    """
    try:
        return re.compile(text.strip().strip("\"'").replace(",", "|"))
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
