"""Builds one answer to a follower: notes what the follower has, reads records for it, and writes the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.log.file_region import FileRegion
from headrace.protocol.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownTopicId, error_code_of
from headrace.protocol.wire.follower_fetch import AnswerWriter
from headrace.protocol.wire.server_codec import EncodedReply
from headrace.replication.epoch_ends import UNKNOWN, EpochEnd
from headrace.replication.replicated_partition import ReplicatedPartition

if TYPE_CHECKING:
    from headrace.broker.replicas.follower_sessions import FollowerSession, SessionPartition
    from headrace.broker.replicas.replicas import ReplicaManager


class _Answer(NamedTuple):
    """The answer for a partition, without the high watermark and the log start."""

    records: FileRegion | None = None
    diverging: EpochEnd | None = None
    error: int = 0


_NOTHING_NEW = _Answer()


class FollowerAnswerBuilder:
    """Builds the answer to one Fetch of a follower. :meth:`read` is called again after each wait."""

    def __init__(self, replicas: ReplicaManager, session: FollowerSession, body: Any) -> None:
        self._replicas = replicas
        self._session = session
        self._max_bytes: int = body.max_bytes
        self._min_bytes: int = max(1, body.min_bytes)
        self._answers: dict[SessionPartition, _Answer] = {}
        self.is_enough = False

    def note(self, followed: SessionPartition) -> None:
        """Notes that the follower asks for a partition. It has all records before the offset that it asks for."""
        session = self._session
        try:
            partition = self._find(followed)
            diverging = partition.fetched(session.replica_id, followed.fetch)
        except Exception as error:  # noqa: BLE001  becomes an error code; an unexpected error is logged there
            self._fail(followed, error)
            return
        followed.read_from(partition)
        self._replicas.follower_fetched(partition)
        if followed.has_news:
            session.stale[followed] = None  # the high watermark or the log start moved before this request
        leader = partition.leader
        if diverging is not None:
            self._answers[followed] = _Answer(diverging=diverging)
            self.is_enough = True
        elif followed.fetch.offset < partition.log.next_offset:
            session.ready[followed] = None
        else:
            session.ready.pop(followed, None)
        if leader is not None and session.replica_id in leader.isr:
            session.outside.discard(followed)
        else:
            session.outside.add(followed)

    def _find(self, followed: SessionPartition) -> ReplicatedPartition:
        known = followed.partition
        if known is not None and known.is_leader:  # a partition that is deleted or lost is not a leader
            return known
        topic, index = followed.key
        name = topic if isinstance(topic, str) else self._replicas.topic_named(topic)
        if name is None:
            raise UnknownTopicId(f"this broker has no topic with the id {topic}")
        partition = self._replicas.partitions.leader(name, index)
        assert isinstance(partition, ReplicatedPartition)
        return partition

    def read(self) -> None:
        """Reads from the partitions that are ready, as much as fits. Keeps it only if it is enough for an answer."""
        ready = self._session.ready
        if not ready:
            return
        regions: dict[SessionPartition, FileRegion] = {}
        size_bytes = 0
        for followed in list(ready):
            if size_bytes >= self._max_bytes:
                break
            if followed in self._answers:
                continue
            try:
                region = self._read(followed, self._max_bytes - size_bytes, is_first=size_bytes == 0)
            except Exception as error:  # noqa: BLE001  becomes an error code; an unexpected error is logged there
                self._fail(followed, error)
                del ready[followed]
                continue
            if region is not None:
                regions[followed] = region
                size_bytes += len(region)
        if self.is_enough or size_bytes >= self._min_bytes:
            self.is_enough = True
            self._replicas.bytes_out += size_bytes
            for followed, region in regions.items():
                assert followed.partition is not None
                self._replicas.throttles.sent(followed.partition, len(region))
                self._answers[followed] = _Answer(region)
                del ready[followed]

    def _read(self, followed: SessionPartition, room_bytes: int, *, is_first: bool) -> FileRegion | None:
        partition, fetch = followed.partition, followed.fetch
        if partition is None or partition.leader is None:
            raise NotLeaderOrFollower("this broker does not lead the partition any more")
        if fetch.leader_epoch not in (UNKNOWN, partition.leader_epoch):
            raise FencedLeaderEpoch(f"the leader epoch is {partition.leader_epoch}, not {fetch.leader_epoch} any more")
        if self._replicas.throttles.must_wait(partition, self._session.replica_id):
            return None
        log = partition.log
        room_bytes = min(room_bytes, followed.max_bytes)
        region = log.read(fetch.offset, room_bytes, until_offset=log.next_offset, at_least_one=is_first).region
        return region or None

    def _fail(self, followed: SessionPartition, error: Exception) -> None:
        self.is_enough = True
        self._session.stale.pop(followed, None)
        self._session.outside.discard(followed)
        self._answers[followed] = _Answer(error=error_code_of(error).value)

    def reply(self, *, is_full: bool, named: list[SessionPartition]) -> EncodedReply:
        """Writes the answer.

        :param is_full: whether the answer must include all partitions that the request names.
        """
        session, answers = self._session, self._answers
        for followed in (*session.stale, *(named if is_full else ())):
            if followed not in answers and (is_full or followed.has_news):
                answers[followed] = _NOTHING_NEW
        session.stale.clear()
        session.is_urgent = False
        writer = AnswerWriter(session.session_id)
        for followed, (records, diverging, error) in answers.items():
            partition = followed.partition
            if error or partition is None:
                writer.put(followed.topic, followed.key[1], UNKNOWN, UNKNOWN, error=error)
                continue
            log = partition.log
            followed.answered = high_watermark, log_start_offset = log.high_watermark, log.log_start_offset
            writer.put(
                followed.topic,
                followed.key[1],
                high_watermark,
                log_start_offset,
                diverging=diverging,
                records=records,
            )
        return writer.encoded()
