"""Sends the markers that end transactions to the leaders of the partitions: by WriteTxnMarkers, or here directly.

A partition has its marker when the marker is committed there: a leader that answers earlier and dies might not have
replicated the marker. A temporary failure (a leader that moves or is not known, a broker that does not answer) is
reported to the coordinator's shard, which tries again with the leader of that time. A permanent failure counts as done:
the topic is deleted, or a newer producer or coordinator has taken over.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from logging import getLogger
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.cluster.links import NoAnswer
from headrace.broker.cluster.outbox import Outbox
from headrace.broker.coordinators.committed import MARKER_COMMIT_TIMEOUT_MS, Append
from headrace.coordination.interface import CoordinationError, NoNodeError
from headrace.coordination.paths import topic_path
from headrace.coordination.znodes import TopicAssignment
from headrace.event_loop import cancel_and_wait
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.transactions.markers import OBSOLETE_MARKER_ERRORS, LocalMarkerWriter, Marker, OnSent
from headrace.transactions.metadata import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.cluster.links import Links
    from headrace.broker.coordinators.committed import CommitWaits
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.coordination.interface import Coordination

logger = getLogger(__name__)

#: How long a coordinator waits for the answer of a leader, which waits until its followers have the markers.
_ANSWER_TIMEOUT_MS = 10_000
_PURPOSE = "markers"
_NO_LEADER = -1

_OBSOLETE_CODES = frozenset(kind.code for kind in OBSOLETE_MARKER_ERRORS)


class _Delivery:
    """One marker for all partitions of a transaction. ``on_sent`` is called when the last part has ended."""

    def __init__(self, marker: Marker, on_sent: OnSent) -> None:
        self.marker = marker
        self._on_sent = on_sent
        self._parts = 1
        self._unsent: set[TopicPartition] = set()

    def begin_part(self) -> None:
        self._parts += 1

    def end_part(self, unsent: Iterable[TopicPartition] = ()) -> None:
        self._unsent.update(unsent)
        self._parts -= 1
        if not self._parts:
            self._on_sent(frozenset(self._unsent))


class _Part(NamedTuple):
    """The partitions to which one broker has to write a marker."""

    delivery: _Delivery
    partitions: Sequence[TopicPartition]


class ClusterMarkers:
    """The ``MarkerSender`` of a coordinator in a cluster."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        coordination: Coordination,
        links: Links,
        commit_waits: CommitWaits,
        local: LocalMarkerWriter,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._coordination = coordination
        self._links = links
        self._commit_waits = commit_waits
        self._local = local
        self._outbox: Outbox[_Part] = Outbox(self._send_to)
        self._waiting: set[asyncio.Task[None]] = set()

    def send(self, marker: Marker, partitions: Iterable[TopicPartition], on_sent: OnSent) -> None:
        delivery = _Delivery(marker, on_sent)
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        unknown: list[TopicPartition] = []
        for topic, index in sorted(partitions):
            info = self._metadata.get(topic)
            if info is not None and index < len(info.partitions):
                by_leader[info.partitions[index].leader_id].append((topic, index))
            else:
                unknown.append((topic, index))
        for leader_id, of_leader in by_leader.items():
            delivery.begin_part()
            if leader_id == _NO_LEADER:
                delivery.end_part(of_leader)
            elif leader_id == self._broker_id:
                self._write_here(_Part(delivery, of_leader))
            else:
                self._outbox.put(leader_id, _Part(delivery, of_leader))
        if unknown:
            delivery.begin_part()
            self._run(self._find_unknown(_Part(delivery, unknown)))
        delivery.end_part()

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _find_unknown(self, part: _Part) -> None:
        """Asks the tree for partitions that the metadata does not have: they were deleted, or this broker has just
        started and its metadata is incomplete."""
        unsent = []
        for topic, index in part.partitions:
            try:
                data, _ = await self._coordination.get(topic_path(topic))
                exists = index in TopicAssignment.from_json(data).partitions
            except NoNodeError:
                exists = False
            except CoordinationError:
                exists = True
            if exists:
                unsent.append((topic, index))
        part.delivery.end_part(unsent)

    async def close(self) -> None:
        await self._outbox.close()
        await cancel_and_wait(list(self._waiting))

    # -- partitions that this broker leads

    def _write_here(self, part: _Part) -> None:
        appends: dict[TopicPartition, Append] = {}
        unsent = []
        for topic, index in part.partitions:
            try:
                written = self._local.write(topic, index, part.delivery.marker)
            except OBSOLETE_MARKER_ERRORS as error:
                logger.info("no marker for %s-%d: %s", topic, index, error)  # the partition has a newer one
            except (KafkaError, OSError) as error:
                logger.debug("no marker for %s-%d yet: %s", topic, index, error)
                unsent.append((topic, index))
            else:
                if written[0].high_watermark < written[1]:
                    appends[topic, index] = written
        if not appends:
            part.delivery.end_part(unsent)
            return
        self._run(self._wait_until_committed(part, appends, unsent))

    async def _wait_until_committed(
        self, part: _Part, appends: dict[TopicPartition, Append], unsent: list[TopicPartition]
    ) -> None:
        errors = await self._commit_waits.outcomes(list(appends.values()), MARKER_COMMIT_TIMEOUT_MS)
        unsent += [partition for partition, error in zip(appends, errors, strict=True) if error is not None]
        part.delivery.end_part(unsent)

    # -- partitions that another broker leads

    async def _send_to(self, broker_id: int, parts: list[_Part]) -> None:
        codes: dict[tuple[int, str, int], int] = {}
        try:
            answer = await self._links.ask_while_alive(
                broker_id,
                Api.WRITE_TXN_MARKERS,
                {"markers": [_request_entry(part) for part in parts]},
                timeout_ms=_ANSWER_TIMEOUT_MS,
                purpose=_PURPOSE,
            )
            codes = _codes(answer)
        except NoAnswer as error:
            logger.info("broker %d does not answer for %d markers: %s", broker_id, len(parts), error)
        finally:
            for part in parts:
                part.delivery.end_part(_unsent(part, codes))


def _request_entry(part: _Part) -> dict[str, object]:
    marker = part.delivery.marker
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in part.partitions:
        topics[topic].append(index)
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.is_commit,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": 0,
    }


def _codes(answer: Any) -> dict[tuple[int, str, int], int]:
    return {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


def _unsent(part: _Part, codes: dict[tuple[int, str, int], int]) -> list[TopicPartition]:
    """The partitions that have no marker yet, with those that the answer does not mention."""
    unsent = []
    for topic, index in part.partitions:
        code = codes.get((part.delivery.marker.producer_id, topic, index), ErrorCode.request_timed_out)
        if code in _OBSOLETE_CODES:
            logger.info("no marker for %s-%d: %s", topic, index, ErrorCode(code).name)
        elif code != ErrorCode.none:
            unsent.append((topic, index))
    return unsent
