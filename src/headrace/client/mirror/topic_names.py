"""Which topics of the source are mirrored, and what they are called at the target: no I/O.

Patterns are for whole names; a comma stands for "or", as in Kafka's own tool. A topic that is renamed is mirrored
without being included. What Kafka, the brokers or a mirror made for themselves is never mirrored, nor, where names get
a prefix, what has it already: it would be mirrored again and again if both sides are one cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

#: What a mirror keeps at the target begins so: its topic of offset syncs, and the group of its positions.
OWN_PREFIX = "headrace-mirror."


class NamesClash(ValueError):
    """Two topics would become one."""


class TopicNames:
    """
    :raises ValueError: if a pattern is none.
    """

    def __init__(
        self, include: str | None, exclude: str | None, renames: Mapping[str, str] | None = None, prefix: str = ""
    ) -> None:
        self._include = None if include is None else topic_pattern(include)
        self._exclude = None if exclude is None else topic_pattern(exclude)
        self._renames = dict(renames or {})
        self._prefix = prefix

    def target_of(self, topic: str) -> str | None:
        """None: it is not mirrored."""
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
        """For each of them that is mirrored, its name at the target.

        :raises NamesClash: if two have the same.
        """
        plan: dict[str, str] = {}
        sources: dict[str, str] = {}
        for topic in sorted(topics):
            target = self.target_of(topic)
            if target is None:
                continue
            if target in sources:
                raise NamesClash(f"{sources[target]} and {topic} would both become {target}")
            plan[topic], sources[target] = target, topic
        return plan


def topic_pattern(text: str) -> re.Pattern[str]:
    """
    :raises ValueError: if it is no regular expression.
    """
    try:
        return re.compile(text.strip().strip("\"'").replace(",", "|"))
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
