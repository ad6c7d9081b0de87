"""Fetch (key 1): reads record batches from the offsets that the client gives.

Speaks v4 to v18 (by topic id from v13 on), with fetch sessions (``fetch_sessions.py``). The answer comes when there are
``min_bytes`` of records, or when ``max_wait`` has passed. The first batch is the one that *contains* the offset. It is
sent whole, even if it is larger than ``max_bytes``; all further batches fit into ``max_bytes``. The handler does not
read the records: the connection sends them from the file.

A consumer with a quota gets at most as much at once as the quota allows in its windows. If it has had too much already,
the answer has no records, and the connection is muted (``quotas/throttling.py``).

In a cluster followers fetch too (``replicas/follower_sessions.py``). From v11 on consumers may read from any replica,
up to the high watermark of that replica, and the leader may send them to a nearer replica (KIP-392).
"""

from __future__ import annotations

from asyncio import Future, get_running_loop, sleep
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.authorization.checks import allowed_topics, authorization_failed, is_allowed_on_cluster
from headrace.broker.current_leaders import NOT_LEADER_CODES
from headrace.broker.fetch_sessions import NO_SESSION, FetchContext, FetchPartition, Key, asked_partitions
from headrace.broker.handlers._nearest import nearest_replica
from headrace.broker.handlers._refused_replica import refused_replica
from headrace.broker.network.request import Reply, Request
from headrace.broker.network.slices import Answers
from headrace.protocol.errors import KafkaError, OffsetOutOfRange, UnknownTopicId, error_code_of
from headrace.protocol.wire.large_messages import ElementArray
from headrace.replication.partition import Isolation, Partition
from headrace.runtime.purgatory import DelayedOperation
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.current_leaders import CurrentLeaders
    from headrace.broker.fetch_sessions import FetchSessions
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.metrics.counters import Metrics
    from headrace.broker.quotas.throttling import Throttling
    from headrace.broker.replicas.followers import Followers
    from headrace.replication.partitions import Partitions
    from headrace.runtime.clock import Clock
    from headrace.runtime.purgatory import Purgatory

_TOPIC_ID_SINCE = 13
_REPLICA_STATE_SINCE = 15
#: Consumers may read from other replicas than the leader since this version.
_ANY_REPLICA_SINCE = 11
_UNKNOWN = -1
#: An append completes only a waiting Fetch of at most this many partitions.
_WATCHED_PARTITIONS = 1_000
#: The interval at which a larger Fetch checks its partitions itself.
_CHECK_EVERY_MS = 50
#: How large an answer without records is, and how large the fields of a partition with records are.
_EMPTY_ANSWER_BYTES, _PARTITION_BYTES = 24, 64

#: A partition that was read: its key, the asked partition, the name of the topic (None if unknown), and the answer.
Entry = tuple[Key, FetchPartition, str | None, dict[str, Any]]
#: A partition with one of these fields is always in the answer, also in an incremental one.
_NEWS = frozenset({"error_code", "diverging_epoch", "preferred_read_replica"})


async def handle(
    request: Request,
    authorizer: Authorizer,
    config: BrokerConfig,
    clock: Clock,
    metadata: MetadataCache,
    partitions: Partitions,
    metrics: Metrics,
    fetch_sessions: FetchSessions,
    delayed_fetch: Purgatory[tuple[str, int]],
    followers: Followers,
    current_leaders: CurrentLeaders,
    throttling: Throttling,
) -> Reply:
    body = request.body
    replica_id = body.replica_id if request.version < _REPLICA_STATE_SINCE else body.replica_state.replica_id
    may_read = allowed_topics(authorizer, request.connection, AclOperation.READ)
    if replica_id >= 0 and not is_allowed_on_cluster(authorizer, request.connection, AclOperation.CLUSTER_ACTION):
        replica_id, may_read = _UNKNOWN, _nothing  # a follower's fetch would move the high watermark
    if followers.includes(replica_id):
        request.is_from_follower = True
        return await followers.fetch(request, replica_id)
    by_topic_id = request.version >= _TOPIC_ID_SINCE
    named = await _named(request, by_topic_id) if isinstance(body.topics, ElementArray) else None
    try:
        fetch = fetch_sessions.open(body, by_topic_id=by_topic_id, named=named)
    except KafkaError as error:
        return {"error_code": error.code, "session_id": NO_SESSION, "responses": ()}
    reading = _Reading(fetch, body, request.version, may_read, config, metadata, partitions, metrics, followers)
    if replica_id >= 0:
        reading.find_by(refused_replica(partitions, replica_id))
    is_limited = throttling.quotas.any_client
    if is_limited:
        reading.limit_bytes(throttling.max_fetch_bytes(request))
    max_wait_ms = round(body.max_wait.total_seconds() * 1000)
    has_many = len(fetch.partitions) > _WATCHED_PARTITIONS
    if has_many:
        await _read_many(request, clock, reading, max_wait_ms)
    else:
        reading.read_all()
        if not reading.is_enough and max_wait_ms > 0 and fetch.partitions:
            waiting = _DelayedFetch(reading, get_running_loop().create_future())
            keys = [(name, wanted.index) for wanted in fetch.partitions.values() if (name := reading.name_of(wanted))]
            if keys and not delayed_fetch.try_complete_else_watch(waiting, keys, max_wait_ms):
                await waiting.done
            reading.read_all()
    if is_limited and throttling.charge_fetch(request, reading.answer_bytes):
        fetch_sessions.discard_new(fetch)
        return {"session_id": fetch.session_id, "responses": ()}
    reply = await _reply_to_many(request, reading) if has_many else reading.reply()
    if reading.has_errors:
        current_leaders.add_to(reply, request)
    return reply


def _nothing(_topic: str) -> bool:
    return False


def _everything(_topic: str) -> bool:
    return True


async def _named(request: Request, by_topic_id: bool) -> dict[Key, FetchPartition]:
    """Returns the partitions of a large request."""
    named: dict[Key, FetchPartition] = {}
    async for key, asked in request.slices.over(asked_partitions(request.body, by_topic_id)):
        named[key] = FetchPartition(key[0], asked)
    return named


async def _read_many(request: Request, clock: Clock, reading: _Reading, max_wait_ms: int) -> None:
    """Reads many partitions, in slices. While it waits for records, it checks all partitions from time to time: a check
    on each append would slow down the appends.
    """
    ends_ms = clock.monotonic_ms() + max_wait_ms
    while True:
        reading.begin()
        async for key, wanted in request.slices.over(list(reading.partitions.items())):
            reading.read_one(key, wanted)
        left_ms = ends_ms - clock.monotonic_ms()
        if reading.is_enough or left_ms <= 0:
            return
        await sleep(min(left_ms, _CHECK_EVERY_MS) / 1000)


async def _reply_to_many(request: Request, reading: _Reading) -> dict[str, Any]:
    """Makes the answer with many partitions, in slices."""
    topics: dict[str | UUID | None, Answers] = {}
    served: list[Key] = []
    encode = request.answer_encoder("responses", "partitions")
    async for entry in request.slices.over(reading.answers):
        if reading.count(entry, served):
            _, wanted, _, answer = entry
            # The connection sends records from the file, and the current leader is added later: encode both at the end.
            may_change = len(answer["records"]) > 0 or answer.get("error_code") in NOT_LEADER_CODES
            topics.setdefault(wanted.topic, Answers(encode)).add(answer, may_change=may_change)
    responses = Answers(request.answer_encoder("responses"))
    async for topic, partitions in request.slices.over(topics.items()):
        responses.add(_topic(topic, partitions), may_change=partitions.may_change)
    return reading.response(responses, served)


class _Reading:
    """Reads all partitions of a request. The handler reads again until there are enough records."""

    def __init__(
        self,
        fetch: FetchContext,
        body: Any,
        version: int,
        may_read: Callable[[str], bool],
        config: BrokerConfig,
        metadata: MetadataCache,
        partitions: Partitions,
        metrics: Metrics,
        followers: Followers,
    ) -> None:
        self._fetch = fetch
        self._may_read = may_read
        self._metadata = metadata
        self._partitions = partitions
        self._metrics = metrics
        self._find: Callable[[str, int, int], Partition] = (
            partitions.replica if version >= _ANY_REPLICA_SINCE else partitions.leader
        )
        #: The consumer's rack, if the consumer may be sent to a replica in its rack.
        self._rack: str = ""
        if followers.has_replica_selector:
            rack = getattr(body, "rack_id", "")
            self._rack = "" if rack == config.optional_str("broker.rack") else rack
        #: The leader epoch in which each partition was read.
        self._epochs: dict[Key, int] = {}
        self._isolation = Isolation(body.isolation_level)
        self._max_bytes = min(body.max_bytes, config.int("fetch.max.bytes"))
        self.min_bytes: int = body.min_bytes
        self.answers: list[Entry] = []
        self._size_bytes = 0
        self.has_errors = False

    def find_by(self, find: Callable[[str, int, int], Partition]) -> None:
        """Finds partitions by this function, for a client that needs no right to read."""
        self._may_read, self._find = _everything, find

    def limit_bytes(self, max_bytes: float) -> None:
        """Reads at most so much."""
        if max_bytes < self._max_bytes:
            self._max_bytes = int(max_bytes)
            self.min_bytes = min(self.min_bytes, self._max_bytes)

    @property
    def answer_bytes(self) -> int:
        """The approximate size of the answer: the records, and the fields around them."""
        served = sum(len(answer["records"]) > 0 for _, _, _, answer in self.answers) if self._size_bytes else 0
        return _EMPTY_ANSWER_BYTES + self._size_bytes + served * _PARTITION_BYTES

    @property
    def is_enough(self) -> bool:
        return self.has_errors or self._size_bytes >= self.min_bytes

    def name_of(self, wanted: FetchPartition) -> str | None:
        if isinstance(wanted.topic, str):
            return wanted.topic
        topic = None if wanted.topic is None else self._metadata.get_by_id(wanted.topic)
        return None if topic is None else topic.name

    @property
    def partitions(self) -> dict[Key, FetchPartition]:
        return self._fetch.partitions

    def read_all(self) -> None:
        self.begin()
        for key, wanted in self._fetch.partitions.items():
            self.read_one(key, wanted)

    def begin(self) -> None:
        self.answers = []
        self._size_bytes = 0

    def read_one(self, key: Key, wanted: FetchPartition) -> None:
        name = self.name_of(wanted)
        try:
            answer = self._read(name, wanted)
        except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
            self.has_errors = True
            answer = _failure(wanted.index, error)
        self.answers.append((key, wanted, name, answer))

    def _read(self, name: str | None, wanted: FetchPartition) -> dict[str, Any]:
        if name is None and self._may_read is not _nothing:
            raise UnknownTopicId(f"there is no topic with the id {wanted.topic}")
        if name is None or not self._may_read(name):
            raise authorization_failed(ResourceType.TOPIC)
        partition = self._find(name, wanted.index, wanted.leader_epoch)
        log = partition.log
        if partition.is_replicated:
            self._epochs[name, wanted.index] = partition.leader_epoch
        answer: dict[str, Any] = {
            "partition_index": wanted.index,
            "high_watermark": log.high_watermark,
            "last_stable_offset": log.last_stable_offset,
            "log_start_offset": log.log_start_offset,
            "aborted_transactions": None,
            "records": b"",
        }
        if wanted.last_fetched_epoch >= 0 and (diverging := _diverging(partition, wanted)) is not None:
            answer["diverging_epoch"] = diverging
            self.has_errors = True
            return answer
        if (
            self._rack
            and (nearer := nearest_replica(self._metadata, partition, wanted.fetch_offset, self._rack)) is not None
        ):
            answer["preferred_read_replica"] = nearer
            self.has_errors = True
            return answer
        until_offset = partition.visible_end(self._isolation)
        room_bytes = max(0, min(wanted.max_bytes, self._max_bytes - self._size_bytes))
        region = log.read(
            wanted.fetch_offset, room_bytes, until_offset=until_offset, at_least_one=self._size_bytes == 0
        ).region
        if region is not None:
            answer["records"] = region
            self._size_bytes += len(region)
        if self._isolation is Isolation.READ_COMMITTED:
            answer["aborted_transactions"] = [
                {"producer_id": aborted.producer_id, "first_offset": aborted.first_offset}
                for aborted in log.aborted_transactions(wanted.fetch_offset, until_offset)
            ]
        return answer

    def has_grown_enough(self) -> bool:
        """Returns whether reading again would give ``min_bytes``, or an error that the client should get at once."""
        size_bytes = 0
        for wanted in self._fetch.partitions.values():
            name = self.name_of(wanted)
            partition = None if name is None else self._partitions.get(name, wanted.index)
            if partition is None or (
                partition.is_replicated and self._epochs.get((name, wanted.index)) != partition.leader_epoch
            ):
                return True
            until_offset = partition.visible_end(self._isolation)
            if until_offset <= wanted.fetch_offset:
                if partition.log.next_offset < wanted.fetch_offset:
                    return True
                continue
            if wanted.fetch_offset < partition.log.log_start_offset:
                return True
            try:
                region = partition.log.read(wanted.fetch_offset, wanted.max_bytes, until_offset=until_offset).region
            except KafkaError:
                return True
            size_bytes += 0 if region is None else len(region)
            if size_bytes >= self.min_bytes:
                return True
        return False

    def reply(self) -> dict[str, Any]:
        """Returns the answer, by topic. An incremental answer has only the partitions that have changed."""
        topics: dict[str | UUID | None, list[dict[str, Any]]] = {}
        served: list[Key] = []
        for entry in self.answers:
            if self.count(entry, served):
                _, wanted, _, answer = entry
                topics.setdefault(wanted.topic, []).append(answer)
        return self.response([_topic(topic, partitions) for topic, partitions in topics.items()], served)

    def count(self, entry: Entry, served: list[Key]) -> bool:
        """Counts a partition that was read, and returns whether it has to be in the answer."""
        key, wanted, name, answer = entry
        size_bytes = len(answer["records"])
        has_news = size_bytes > 0 or not _NEWS.isdisjoint(answer)
        if size_bytes:
            served.append(key)
        if name is not None:
            stats = self._metrics.by_topic[name]
            stats.fetch_requests += 1
            stats.bytes_out += size_bytes
            stats.failed_fetch_requests += "error_code" in answer
        return self._fetch.must_include(wanted, answer["high_watermark"], answer["log_start_offset"], has_news)

    def response(self, topics: Answers | list[dict[str, Any]], served: list[Key]) -> dict[str, Any]:
        fetch = self._fetch
        if fetch.is_incremental:
            fetch.move_to_end(served)
        return {"session_id": fetch.session_id, "responses": topics}


def _topic(topic: str | UUID | None, partitions: Answers | list[dict[str, Any]]) -> dict[str, Any]:
    return {"topic": topic, "topic_id": topic, "partitions": partitions}


class _DelayedFetch(DelayedOperation):
    """Waits until there are enough records."""

    def __init__(self, reading: _Reading, done: Future[None]) -> None:
        self._reading = reading
        self.done = done

    def try_complete(self) -> bool:
        return self._reading.has_grown_enough() and self.force_complete()

    def on_complete(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


def _diverging(partition: Partition, wanted: FetchPartition) -> dict[str, int] | None:
    """Returns the epoch and offset from which on the reader's log differs from this log (KIP-595), or None."""
    epoch, end_offset = partition.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch == _UNKNOWN:
        raise OffsetOutOfRange(f"the log has no leader epoch {wanted.last_fetched_epoch}")
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return {"epoch": epoch, "end_offset": end_offset}
    return None


def _failure(index: int, error: Exception) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": error_code_of(error),
        "high_watermark": _UNKNOWN,
        "last_stable_offset": _UNKNOWN,
        "log_start_offset": _UNKNOWN,
        "aborted_transactions": None,
        "records": b"",
    }
