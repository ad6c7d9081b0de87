"""Resolves the topics that members subscribe to: which topics exist, and which topics a regular expression matches."""

from collections.abc import Callable, Container

from headrace.groups.consumer.records import hash_of_topics
from headrace.groups.context import KnownTopic, TopicLookup
from headrace.patterns import compiled_pattern


class SubscribedTopics:
    """The topics that exist, as far as a group's subscriptions concern them."""

    def __init__(self, topics: TopicLookup) -> None:
        self._topics = topics
        #: Decides which topics the member sees that sent the last heartbeat; None if no member has sent one since the
        #: group was loaded. As in Kafka, this member decides for all members with the same expression.
        self.may_describe: Callable[[str], bool] | None = None

    @property
    def version(self) -> int:
        """A number that changes whenever a topic is created, changed or deleted."""
        return self._topics.version

    def matching(self, regex: str, known: Container[str] = ()) -> frozenset[str]:
        """The names of the topics that a regular expression matches, and that a member may see.

        :param known: the topics that the expression matched before. While no member has said what it may see, no other
            topics match.
        :raises InvalidRegularExpression: if RE2 does not accept the expression.
        """
        names = compiled_pattern(regex).among(topic.name for topic in self._topics.all_topics())
        return frozenset(filter(known.__contains__ if self.may_describe is None else self.may_describe, names))

    def existing(self, names: frozenset[str]) -> dict[str, KnownTopic]:
        """Those of the topics that exist."""
        return {name: found for name in names if (found := self._topics.topic(name)) is not None}

    def hash_of(self, names: frozenset[str]) -> int:
        """A hash that changes when one of the topics is created, changed or deleted."""
        return hash_of_topics(self.existing(names).values())
