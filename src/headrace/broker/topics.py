"""The interface through which handlers create, change and delete topics.

``LoneTopics`` (``lone/topics.py``) writes a topic and makes its folders in one go. ``ClusterTopics``
(``cluster/topics.py``) writes a topic's assignment to ZooKeeper, and the controller acts on it; therefore a caller has
to wait until the metadata shows the change. The rules for names, partitions and placement are the same for both
(``controller/topic_rules.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from headrace.controller.topic_rules import NewTopic, Topic, check_name


class Topics(ABC):
    #: Whether a partition may have several replicas.
    are_replicated: bool
    #: How many topics of one request are created at the same time.
    created_together: int

    #: Raises InvalidTopic if a topic may not have this name.
    check_name = staticmethod(check_name)

    @abstractmethod
    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """Writes a new topic to the tree, or only checks whether it could be written.

        :raises KafkaError: if the name is taken or invalid, or the settings or the placement are invalid.
        """

    @abstractmethod
    async def create_automatically(self, name: str) -> Topic:
        """Creates a topic with the broker's defaults, because a client asked for its metadata."""

    @abstractmethod
    async def add_partitions(
        self, name: str, count: int, given: Sequence[tuple[int, ...]] | None, *, validate_only: bool = False
    ) -> Topic:
        """Raises the number of partitions to ``count``. ``given`` are the replicas of the new partitions."""

    @abstractmethod
    async def delete(self, name: str) -> None:
        """
        :raises UnknownTopicOrPartition: if there is no such topic.
        """

    @abstractmethod
    def configs_of(self, name: str) -> Mapping[str, str]:
        """The topic's own settings, as this broker applies them; empty if there is no such topic."""

    @abstractmethod
    async def stored_configs(self, name: str) -> Mapping[str, str]:
        """The topic's own settings, as the tree has them.

        :raises UnknownTopicOrPartition: if there is no such topic.
        """

    @abstractmethod
    async def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replaces the topic's own settings. The caller has checked them."""

    @abstractmethod
    async def wait_until_applied(
        self, made: Mapping[str, int], timeout_ms: int, *, gone: Sequence[str] = ()
    ) -> set[str]:
        """Waits until this broker's metadata shows changes of topics.

        :param made: topics and the number of partitions that must have a leader.
        :param gone: topics that must be deleted.
        :return: the topics that do not show the change when the time is up.
        """

    @abstractmethod
    async def wait_until_propagated(
        self, made: Mapping[str, int], timeout_ms: int, *, gone: Sequence[str] = ()
    ) -> None:
        """Waits for a short time until the metadata of the other brokers shows the same changes."""

    @abstractmethod
    async def wait_until_removed(self, names: Sequence[str], timeout_ms: int) -> None:
        """Waits for a short time until deleted topics are gone from the tree, so that they can be created again."""
