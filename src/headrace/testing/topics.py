"""Creates topics for a test and deletes them after it, in about a millisecond each.

A :class:`TopicFactory` holds one connection for all tests. It speaks the protocol itself (:class:`RawClient`), because
an admin client of any library costs more than the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.raw_client import RawClient

_TIMEOUT_MS = 10_000


class TopicFactory:
    """Topics on one broker. Not for use by several threads at once."""

    def __init__(self, bootstrap_servers: str) -> None:
        """
        :param bootstrap_servers: the address of one broker, ``host:port``.
        """
        self._client = RawClient(bootstrap_servers, client_id="headrace-topic-factory")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def create(self, name: str, partitions: int = 1, settings: Mapping[str, object] | None = None) -> str:
        """Creates a topic and returns its name; clients see the topic when this returns.

        :param settings: the topic's settings by Kafka's names, such as ``{"cleanup.policy": "compact"}``.
        :raises ValueError: if the broker refuses the topic; the message has Kafka's error code and the broker's reason.
        """
        configs = [{"name": key, "value": setting_text(value)} for key, value in (settings or {}).items()]
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": (),
            "configs": configs,
        }
        asked = {"topics": [topic], "timeout": _TIMEOUT_MS, "validate_only": False}
        (answer,) = self._client.ask(Api.CREATE_TOPICS, 7, **asked).topics
        if answer.error_code:
            code = ErrorCode(answer.error_code).name.upper()
            raise ValueError(f"cannot create the topic {name!r}: {code}: {answer.error_message}")
        return name

    def delete_all(self, prefix: str) -> None:
        """Deletes every topic whose name begins with the prefix, also those that clients have created."""
        listed = self._client.ask(
            Api.METADATA,
            12,
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        names = [topic.name for topic in listed.topics if topic.name.startswith(prefix)]
        if names:
            topics = [{"name": name, "topic_id": None} for name in names]
            self._client.ask(Api.DELETE_TOPICS, 6, topics=topics, timeout=_TIMEOUT_MS)


def setting_text(value: object) -> str:
    """A setting's value as Kafka writes it: ``True`` is ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)
