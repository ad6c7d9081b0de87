"""Resolves the topics that members subscribe to: which topics exist, and which topics a regular expression matches."""

from headrace.groups.consumer.records import hash_of_topics
from headrace.groups.context import KnownTopic, TopicLookup
from headrace.patterns import compiled_pattern


class SubscribedTopics:
    """The topics that exist, as far as a group's subscriptions concern them."""

    def __init__(self, topics: TopicLookup) -> None:
        self._topics = topics

    @property
    def version(self) -> int:
        """A number that changes whenever a topic is created, changed or deleted."""
        return self._topics.version

    def matching(self, regex: str) -> frozenset[str]:
        """The names of the topics that a regular expression matches.

        :raises InvalidRegularExpression: if RE2 does not accept the expression.
        """
        return compiled_pattern(regex).among(topic.name for topic in self._topics.all_topics())

    def existing(self, names: frozenset[str]) -> dict[str, KnownTopic]:
        """Those of the topics that exist."""
        return {name: found for name in names if (found := self._topics.topic(name)) is not None}

    def hash_of(self, names: frozenset[str]) -> int:
        """A hash that changes when one of the topics is created, changed or deleted."""
        return hash_of_topics(self.existing(names).values())
