"""Builds the fields of a consumer's Fetch requests."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from headrace.client.consumer.fetch_session import SessionRequest
from headrace.protocol.wire.consumer_fetch import TOPIC_IDS_FROM


class FetchLimits(NamedTuple):
    """The fields that are the same in all requests of a consumer."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool = False
    rack_id: str = ""


def request_fields(request: SessionRequest, limits: FetchLimits) -> dict[str, Any]:
    """Returns the fields of a request, for all versions. A topic has a name and an id; a version uses one of them."""
    topics: dict[tuple[str, UUID | None], list[dict[str, int]]] = {}
    for (topic, partition), fetch in request.partitions.items():
        topics.setdefault((topic, fetch.topic_id), []).append(
            {
                "partition": partition,
                "current_leader_epoch": fetch.current_leader_epoch,
                "fetch_offset": fetch.fetch_offset,
                "last_fetched_epoch": fetch.last_fetched_epoch,
                "log_start_offset": -1,
                "partition_max_bytes": fetch.max_bytes,
            }
        )
    forgotten: dict[tuple[str, UUID | None], list[int]] = {}
    for (topic, partition), topic_id in request.forgotten.items():
        forgotten.setdefault((topic, topic_id), []).append(partition)
    return {
        "replica_id": -1,
        "max_wait": limits.max_wait_ms,
        "min_bytes": limits.min_bytes,
        "max_bytes": limits.max_bytes,
        "isolation_level": int(limits.read_committed),
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": _by_topic(topics),
        "forgotten_topics_data": _by_topic(forgotten),
        "rack_id": limits.rack_id,
    }


def _by_topic(topics: Mapping[tuple[str, UUID | None], object]) -> list[dict[str, object]]:
    return [{"topic": name, "topic_id": topic_id, "partitions": found} for (name, topic_id), found in topics.items()]


def highest_version(request: SessionRequest) -> int | None:
    """Returns the highest version that the request may use; None if all topics have ids, so that any will do."""
    ids = (*(fetch.topic_id for fetch in request.asked.values()), *request.forgotten.values())
    return TOPIC_IDS_FROM - 1 if None in ids else None
