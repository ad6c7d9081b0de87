"""Topics that the quota controller_mutation_rate refuses are sent again within the timeout (KIP-599)."""

from uuid import UUID

import pytest
from fake_broker import FakeBroker, running, serving_a_topic

from headrace import AsyncAdmin
from headrace.client.errors import QuotaExceeded, TopicExists
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode

THROTTLE_MS = 80
_REFUSED = ErrorCode.throttling_quota_exceeded.value


def created(name: str, code: int) -> dict[str, object]:
    return {
        "name": name, "topic_id": UUID(int=1), "error_code": code, "error_message": None, "num_partitions": 1,
        "replication_factor": 1, "configs": [],
    }  # fmt: skip


def refusing(times: int, throttle_ms: int = THROTTLE_MS) -> FakeBroker:
    """A broker that accepts the topic "other", and refuses each other topic ``times`` times."""
    broker = serving_a_topic(FakeBroker())
    left = [times]

    def codes(names: list[str]) -> dict[str, int]:
        left[0] -= 1
        special = {"other": 0, "there": ErrorCode.topic_already_exists.value}
        return {name: special.get(name, _REFUSED if left[0] >= 0 else 0) for name in names}

    def answer_create(request):
        found = codes([topic.name for topic in request.topics])
        throttle = throttle_ms if _REFUSED in found.values() else 0
        return {"throttle_time": throttle, "topics": [created(*one) for one in found.items()]}

    def answer_delete(request):
        found = codes([topic.name for topic in request.topics])
        rows = [
            {"name": name, "topic_id": UUID(int=1), "error_code": code, "error_message": None}
            for name, code in found.items()
        ]
        return {"throttle_time": throttle_ms if _REFUSED in found.values() else 0, "responses": rows}

    def answer_widen(request):
        found = codes([topic.name for topic in request.topics])
        rows = [{"name": name, "error_code": code, "error_message": None} for name, code in found.items()]
        return {"throttle_time": throttle_ms if _REFUSED in found.values() else 0, "results": rows}

    broker.answers[Api.CREATE_TOPICS] = answer_create
    broker.answers[Api.DELETE_TOPICS] = answer_delete
    broker.answers[Api.CREATE_PARTITIONS] = answer_widen
    return broker


def names(broker: FakeBroker, api: Api) -> list[list[str]]:
    return [[topic.name for topic in request.topics] for request in broker.of(api)]


async def test_only_the_refused_topics_are_sent_again_after_the_time():
    async with running(refusing(2)) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.servers) as admin:
            results = await admin.create_topics(["a", "other", "there"], wait=False)
        assert sorted(results.ok) == ["a", "other"]
        assert isinstance(results["there"], TopicExists)
        assert names(broker, Api.CREATE_TOPICS) == [["a", "other", "there"], ["a"], ["a"]]
        first, second, third = broker.arrivals(Api.CREATE_TOPICS)
        assert min(second - first, third - second) >= THROTTLE_MS / 1000 - 0.01


async def test_without_retries_the_error_has_the_time():
    async with running(refusing(9)) as broker, AsyncAdmin(bootstrap_servers=broker.servers) as admin:
        results = await admin.create_topics(["a", "other"], wait=False, retry_on_quota_violation=False)
        error = results["a"]
        assert isinstance(error, QuotaExceeded)
        assert (error.code, error.throttle_time_ms) == (ErrorCode.throttling_quota_exceeded, THROTTLE_MS)
        assert error.is_retriable
        assert list(results.ok) == ["other"]
        assert names(broker, Api.CREATE_TOPICS) == [["a", "other"]]


async def test_a_time_that_is_longer_than_the_timeout_ends_the_call_at_once():
    broker = refusing(9, throttle_ms=60_000)
    async with running(broker), AsyncAdmin(bootstrap_servers=broker.servers) as admin:
        results = await admin.create_topics(["a"], wait=False, timeout_ms=5_000)
        with pytest.raises(QuotaExceeded):
            results.value("a")


async def test_deleting_and_widening_are_sent_again_too():
    async with running(refusing(1)) as broker, AsyncAdmin(bootstrap_servers=broker.servers) as admin:
        results = await admin.delete_topics(["a", "other"], wait=False)
        assert sorted(results.ok) == ["a", "other"]
        assert names(broker, Api.DELETE_TOPICS) == [["a", "other"], ["a"]]
    async with running(refusing(1)) as broker, AsyncAdmin(bootstrap_servers=broker.servers) as admin:
        assert sorted((await admin.create_partitions({"a": 3, "other": 3})).ok) == ["a", "other"]
        assert names(broker, Api.CREATE_PARTITIONS) == [["a", "other"], ["a"]]
        refused = await admin.create_partitions({"a": 3}, retry_on_quota_violation=False)
        assert list(refused.ok) == ["a"]
