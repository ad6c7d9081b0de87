"""Holds the name of a partition."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition: its topic, and its number within the topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
