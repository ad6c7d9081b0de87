"""Commits the offsets of a request, for OffsetCommit and TxnOffsetCommit.

An unknown partition is refused alone. All other offsets of a request are committed in one batch, or refused together.
As in Kafka, metadata that is too long is reported only if the group accepts the commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import allowed_topics
from headrace.broker.metadata_cache import TopicInfo
from headrace.broker.network.request import Request
from headrace.groups.committing import client_error_code
from headrace.groups.offset_records import NO_LEADER_EPOCH, TopicCommit
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.protocol.kio import load_response_schema
from headrace.protocol.wire.encoder import nested_encoder
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.metadata_cache import MetadataCache

#: The number of partitions for which the encoded answers with one code are kept.
_MAX_KEPT_ANSWERS = 20_000


class Commits:
    """The offsets of a request: those that can be committed, and the error codes of the others."""

    def __init__(
        self,
        request: Request,
        authorizer: Authorizer,
        metadata: MetadataCache,
        config: BrokerConfig,
        *,
        by_id: bool = False,
    ) -> None:
        may_read = allowed_topics(authorizer, request.connection, AclOperation.READ)
        self._request = request
        self._possible: list[TopicCommit] = []
        self._is_for_group = False
        self._metadata_limit = config.int("offset.metadata.max.bytes")
        #: Each topic of the request, with a code for each partition; None means the code of the whole commit.
        self._topics: list[tuple[Any, list[ErrorCode | None]]] = []
        for asked in request.body.topics:
            if by_id:
                topic = None if asked.topic_id is None else metadata.get_by_id(asked.topic_id)
            else:
                topic = metadata.get(asked.name)
            name = asked.name if not by_id else None if topic is None else topic.name
            if name is not None and not may_read(name):
                self._topics.append((asked, [ErrorCode.topic_authorization_failed] * len(asked.partitions)))
            else:
                self._topics.append((asked, self._check_topic(asked, topic, by_id=by_id)))

    def _check_topic(self, asked: Any, topic: TopicInfo | None, *, by_id: bool) -> list[ErrorCode | None]:
        if topic is None:
            code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
            return [code] * len(asked.partitions)
        has_epochs = bool(asked.partitions) and hasattr(asked.partitions[0], "committed_leader_epoch")
        commits = [
            (
                wanted.partition_index,
                wanted.committed_offset,
                wanted.committed_leader_epoch if has_epochs else NO_LEADER_EPOCH,
                wanted.committed_metadata or "",
            )
            for wanted in asked.partitions
        ]
        codes = self._refusals(commits, len(topic.partitions))
        if codes is None:
            codes = [None] * len(commits)
        else:
            commits = [commit for commit, code in zip(commits, codes, strict=True) if code is None]
        if commits:
            self._possible.append(TopicCommit(topic.name, topic.topic_id, commits))
        self._is_for_group |= bool(commits) or ErrorCode.offset_metadata_too_large in codes
        return codes

    def _refusals(
        self, commits: Sequence[tuple[int, int, int, str]], partition_count: int
    ) -> list[ErrorCode | None] | None:
        """Returns the codes of unknown partitions and of metadata that is too long; None if no partition has a code."""
        indexes, _, _, metadata = zip(*commits, strict=True) if commits else ((0,), (), (), ())
        if min(indexes) >= 0 and max(indexes) < partition_count and not any(metadata):
            return None
        limit = self._metadata_limit
        return [
            ErrorCode.unknown_topic_or_partition
            if not 0 <= index < partition_count
            else ErrorCode.offset_metadata_too_large
            if text and _utf16_units(text) > limit
            else None
            for index, _, _, text in commits
        ]

    async def answer(self, commit: Callable[[list[TopicCommit]], Awaitable[None]]) -> list[dict[str, object]]:
        """Commits the offsets that can be committed, and returns an answer for each partition."""
        code = ErrorCode.none
        if self._is_for_group:
            try:
                await commit(self._possible)
            except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
                code = client_error_code(error)
        api, version = self._request.api, self._request.version
        return [
            {
                "name": getattr(asked, "name", None),
                "topic_id": getattr(asked, "topic_id", None),
                "partitions": _encoded_all(api, version, asked.partitions, codes, code),
            }
            for asked, codes in self._topics
        ]


def refused_commit(request: Request, code: ErrorCode) -> list[dict[str, object]]:
    """Returns the answer of a client that may not use its group, or its transactional id: one code for all."""
    return [
        {
            "name": getattr(asked, "name", None),
            "topic_id": getattr(asked, "topic_id", None),
            "partitions": _encoded_all(request.api, request.version, asked.partitions, (), code),
        }
        for asked in request.body.topics
    ]


def _combined(own: ErrorCode, common: ErrorCode) -> ErrorCode:
    return common if common and own is ErrorCode.offset_metadata_too_large else own


def _encoded_all(
    api: Api, version: int, asked: Sequence[Any], codes: Sequence[ErrorCode | None], common: ErrorCode
) -> list[bytes]:
    """Returns the encoded answers of a topic's partitions."""
    good = _answers_of(api, version, common)
    if not any(codes):
        return [good[wanted.partition_index] for wanted in asked]
    return [
        good[wanted.partition_index]
        if own is None
        else _answers_of(api, version, _combined(own, common))[wanted.partition_index]
        for wanted, own in zip(asked, codes, strict=True)
    ]


class _Answers(dict[int, bytes]):
    """The encoded answers with one code, by partition. A request has hundreds of answers, and few are different."""

    def __init__(self, api: Api, version: int, code: ErrorCode) -> None:
        self._encode = nested_encoder(load_response_schema(api, version), "topics", "partitions")
        self._code = code

    def __missing__(self, index: int) -> bytes:
        out = bytearray()
        self._encode(out, {"partition_index": index, "error_code": self._code}, [])
        if len(self) < _MAX_KEPT_ANSWERS:
            self[index] = bytes(out)
        return bytes(out)


@lru_cache(maxsize=64)
def _answers_of(api: Api, version: int, code: ErrorCode) -> _Answers:
    return _Answers(api, version, code)


def _utf16_units(text: str) -> int:
    """Returns the length as Kafka measures it, though the setting is called ``offset.metadata.max.bytes``."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
