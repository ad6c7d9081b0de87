"""What OffsetCommit and TxnOffsetCommit have in common: which of the partitions asked for can be committed, and an
answer for each partition.

Unknown partitions and oversized metadata are refused alone; the rest is committed in one batch, or refused as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.broker.metadata_cache import TopicInfo
from headrace.broker.request import Request
from headrace.groups.committing import told_code
from headrace.groups.offset_records import NO_LEADER_EPOCH, TopicCommit
from headrace.protocol.api import Api
from headrace.protocol.encoder import nested_encoder
from headrace.protocol.errors import ErrorCode
from headrace.protocol.kio import load_response_schema

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

#: Partitions of the most answers that are kept encoded.
_KEPT_ANSWERS = 20_000


class Commits:
    """The commits of a request: those that are possible, and what is answered for the others."""

    def __init__(self, broker: Broker, request: Request, *, by_id: bool = False) -> None:
        self.possible: list[TopicCommit] = []
        self._request = request
        self._metadata_limit = broker.config.int("offset.metadata.max.bytes")
        #: For each topic of the request its partitions, and the code of each where it is not the common one.
        self._topics: list[tuple[Any, dict[int, ErrorCode]]] = []
        for asked in request.body.topics:
            known = broker.metadata
            topic = (
                (None if asked.topic_id is None else known.get_by_id(asked.topic_id))
                if by_id
                else known.get(asked.name)
            )
            self._topics.append((asked, self._sort_out(asked, topic, by_id=by_id)))

    def _sort_out(self, asked: Any, topic: TopicInfo | None, *, by_id: bool) -> dict[int, ErrorCode]:
        if topic is None:
            code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
            return {wanted.partition_index: code for wanted in asked.partitions}
        refused: dict[int, ErrorCode] = {}
        count, limit = len(topic.partitions), self._metadata_limit
        has_epochs = bool(asked.partitions) and hasattr(asked.partitions[0], "committed_leader_epoch")
        commits = []
        for wanted in asked.partitions:
            index, metadata = wanted.partition_index, wanted.committed_metadata
            if not 0 <= index < count:
                refused[index] = ErrorCode.unknown_topic_or_partition
            elif metadata and _utf16_units(metadata) > limit:
                refused[index] = ErrorCode.offset_metadata_too_large
            else:
                epoch = wanted.committed_leader_epoch if has_epochs else NO_LEADER_EPOCH
                commits.append((index, wanted.committed_offset, epoch, metadata or ""))
        if commits:
            self.possible.append(TopicCommit(topic.name, topic.topic_id, commits))
        return refused

    def answer(self, commit: Callable[[list[TopicCommit]], None]) -> list[dict[str, object]]:
        """Commits what is possible, and says of each partition how it went."""
        code = ErrorCode.none
        if self.possible:
            try:
                commit(self.possible)
            except Exception as error:  # noqa: BLE001  whatever it is becomes a code, and is logged if it is ours
                code = told_code(error)
        return self.answer_all(code)

    def answer_all(self, code: ErrorCode) -> list[dict[str, object]]:
        """One code for all that was possible."""
        api, version = self._request.api, self._request.version
        return [
            {
                "name": getattr(asked, "name", None),
                "topic_id": getattr(asked, "topic_id", None),
                "partitions": list(_encoded(api, version, asked.partitions, refused, code)),
            }
            for asked, refused in self._topics
        ]


def _encoded(
    api: Api, version: int, partitions: Iterable[Any], refused: dict[int, ErrorCode], code: ErrorCode
) -> Iterable[bytes]:
    if not refused:
        return [_answered(api, version, wanted.partition_index, code) for wanted in partitions]
    return [
        _answered(api, version, wanted.partition_index, refused.get(wanted.partition_index, code))
        for wanted in partitions
    ]


@lru_cache(maxsize=_KEPT_ANSWERS)
def _answered(api: Api, version: int, index: int, code: ErrorCode) -> bytes:
    """A partition's answer. There are few different ones, and a request has hundreds."""
    out = bytearray()
    encode = nested_encoder(load_response_schema(api, version), "topics", "partitions")
    encode(out, {"partition_index": index, "error_code": code}, [])
    return bytes(out)


def _utf16_units(text: str) -> int:
    """The length that Kafka measures; its setting speaks of bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
