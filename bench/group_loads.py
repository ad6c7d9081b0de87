"""Defines the loads of groups and transactions. All but transactions are bare requests on sockets, without a client."""

from __future__ import annotations

import asyncio
import statistics
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Producer
from loads import Rate
from servers import Server

from headrace.protocol.api import Api
from headrace.testing.raw_client import ClosedByPeer, RawClient, decode_response, encode_request

MEMBERS = 100
GROUP_PARTITIONS = 400
COMMIT_PARTITIONS = 100
RECORDS_PER_TRANSACTION = 10
#: How soon a member that is in hears that the group forms anew. Short, so that the broker is measured, not the wait.
HEARTBEAT_SECONDS = 0.01
_LIMIT_SECONDS = 120.0
_REBALANCE_IN_PROGRESS, _MEMBER_ID_REQUIRED = 27, 79


def patiently(ask: Callable[[], Any], is_good: Callable[[Any], bool]) -> Any:
    """Asks until the answer is good: a coordinator that was just started says for a while that it is not ready."""
    until = time.perf_counter() + _LIMIT_SECONDS
    while not is_good(answer := ask()):
        assert time.perf_counter() < until, f"the last answer after {_LIMIT_SECONDS} s: {answer!r:.500}"
        time.sleep(0.002)
    return answer


def await_coordinator(client: RawClient, group: str) -> None:
    """Makes the topic of groups if need be, and returns when the coordinator of this group serves."""
    patiently(
        lambda: client.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group]),
        lambda answer: not answer.coordinators[0].error_code,
    )
    asked = [{"group_id": group, "topics": None}]
    patiently(
        lambda: client.ask(Api.OFFSET_FETCH, 8, groups=asked, require_stable=False),
        lambda answer: not answer.groups[0].error_code,
    )


# -- (a) a group comes to rest


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _subscription(topic: str) -> bytes:
    return struct.pack(">hi", 0, 1) + _text(topic) + struct.pack(">i", -1)


def _assignment(topic: str, partitions: range) -> bytes:
    numbers = struct.pack(f">{len(partitions) + 1}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + _text(topic) + numbers + struct.pack(">i", -1)


class Member:
    """One member on its own connection: joins, syncs, heartbeats, and joins again when the group forms anew."""

    def __init__(self, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self._correlation_id = 0

    async def connect(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)

    async def ask(self, api: Api, version: int, **fields: Any) -> Any:
        self._correlation_id += 1
        frame = encode_request(api, version, self._correlation_id, "bench", **fields)
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        (size_bytes,) = struct.unpack(">i", await self._reader.readexactly(4))
        return decode_response(api, version, await self._reader.readexactly(size_bytes))

    async def comes_in(self) -> None:
        """Joins and syncs, until one generation went through both."""
        while True:
            joined = await self._joins()
            self.generation = joined.generation_id
            share = GROUP_PARTITIONS // MEMBERS
            assignments = [
                {
                    "member_id": each.member_id,
                    "assignment": _assignment(self.topic, range(at * share, (at + 1) * share)),
                }
                for at, each in enumerate(joined.members)
            ]
            synced = await self.ask(
                Api.SYNC_GROUP, 5, group_id=self.group, generation_id=self.generation, member_id=self.member_id,
                group_instance_id=None, protocol_type="consumer", protocol_name="range",
                assignments=assignments,
            )  # fmt: skip
            if synced.error_code != _REBALANCE_IN_PROGRESS:
                assert not synced.error_code, synced
                self.assignment = synced.assignment
                return

    async def _joins(self) -> Any:
        while True:
            joined = await self.ask(
                Api.JOIN_GROUP, 9, group_id=self.group, session_timeout=30_000, rebalance_timeout=60_000,
                member_id=self.member_id, group_instance_id=None, protocol_type="consumer", reason=None,
                protocols=[{"name": "range", "metadata": _subscription(self.topic)}],
            )  # fmt: skip
            self.member_id = joined.member_id
            if joined.error_code != _MEMBER_ID_REQUIRED:
                assert not joined.error_code, joined
                return joined

    async def state(self) -> str:
        """Of the group, by Kafka's word."""
        described = await self.ask(Api.DESCRIBE_GROUPS, 5, groups=[self.group], include_authorized_operations=False)
        state: str = described.groups[0].group_state
        return state

    async def stays(self, group: Forming) -> None:
        """Heartbeats until the group is complete; comes in again whenever it forms anew."""
        while not group.is_complete:
            await self.comes_in()
            group.counts(self)
            while not group.is_complete:
                beat = await self.ask(
                    Api.HEARTBEAT, 4, group_id=self.group, generation_id=self.generation, member_id=self.member_id,
                    group_instance_id=None,
                )  # fmt: skip
                if beat.error_code == _REBALANCE_IN_PROGRESS:
                    break
                assert not beat.error_code, beat
                await asyncio.sleep(HEARTBEAT_SECONDS)

    def close(self) -> None:
        self._writer.close()


class Forming:
    """Who is in which generation. The group is complete when all are in the same one, with their assignments."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._in: dict[int, set[str]] = {}
        self.seconds = 0.0
        self._started = time.perf_counter()

    @property
    def is_complete(self) -> bool:
        return self.seconds > 0

    def counts(self, member: Member) -> None:
        members = self._in.setdefault(member.generation, set())
        members.add(member.member_id)
        if len(members) == self._count and not self.is_complete:
            self.seconds = time.perf_counter() - self._started


async def _form(server: Server, group: str, topic: str) -> float:
    members = [Member(group, topic) for _ in range(MEMBERS)]
    try:
        for member in members:
            await member.connect(server.port)
        forming = Forming(MEMBERS)
        await asyncio.wait_for(asyncio.gather(*(member.stays(forming) for member in members)), _LIMIT_SECONDS)
        assert all(member.assignment for member in members)
        assert await members[0].state() == "Stable"
        leaving = [{"member_id": each.member_id, "group_instance_id": None, "reason": None} for each in members]
        assert not (await members[0].ask(Api.LEAVE_GROUP, 5, group_id=group, members=leaving)).error_code
        return forming.seconds
    finally:
        for member in members:
            member.close()


def group_to_stable(server: Server, name: str, topic: str, rounds: int) -> float:
    """Seconds from the first of 100 JoinGroups until all members have their assignments; the median of some groups."""
    groups = [f"{name}-{number}" for number in range(rounds)]
    with RawClient(server.address) as client:
        for group in groups:
            await_coordinator(client, group)
    return statistics.median([asyncio.run(_form(server, group, topic)) for group in groups])


# -- (b) commits


@dataclass
class Commits:
    """A group's commit of 100 partitions as the bytes of a request, and the question for what is committed."""

    group: str
    topic: str

    def request(self, offset: int) -> bytes:
        partitions = [
            {"partition_index": index, "committed_offset": offset + index, "committed_leader_epoch": -1,
             "committed_metadata": ""}
            for index in range(COMMIT_PARTITIONS)
        ]  # fmt: skip
        return encode_request(
            Api.OFFSET_COMMIT, 8, 1, "bench", group_id=self.group, generation_id_or_member_epoch=-1, member_id="",
            group_instance_id=None, topics=[{"name": self.topic, "partitions": partitions}],
        )  # fmt: skip

    def question(self) -> bytes:
        topics = [{"name": self.topic, "partition_indexes": list(range(COMMIT_PARTITIONS))}]
        group = {"group_id": self.group, "topics": topics}
        return encode_request(Api.OFFSET_FETCH, 8, 1, "bench", groups=[group], require_stable=True)


def _exchange(client: RawClient, frame: bytes) -> bytes:
    client.send_frame(frame)
    return client.read_frame()


def _is_committed(frame: bytes) -> bool:
    answer = decode_response(Api.OFFSET_COMMIT, 8, frame)
    codes = [each.error_code for each in answer.topics[0].partitions]
    return len(codes) == COMMIT_PARTITIONS and not any(codes)


def offset_commits(server: Server, group: str, topic: str, count: int) -> Rate:
    """OffsetCommits of 100 partitions, one after the other on one connection. The CPU is that of a request, in µs."""
    commits = Commits(group, topic)
    first, others = commits.request(0), [commits.request(offset) for offset in range(1, 11)]
    with RawClient(server.address, timeout_s=_LIMIT_SECONDS) as client:
        await_coordinator(client, group)
        good = patiently(lambda: _exchange(client, first), _is_committed)
        cpu, started = server.cpu_seconds, time.perf_counter()
        for number in range(count):
            answer = _exchange(client, others[number % 10])
            assert answer == good, answer
        elapsed = time.perf_counter() - started
        cpu = server.cpu_seconds - cpu
        found = decode_response(Api.OFFSET_FETCH, 8, _exchange(client, commits.question()))
    last = (count - 1) % 10 + 1
    offsets = [each.committed_offset for each in found.groups[0].topics[0].partitions]
    assert offsets == list(range(last, last + COMMIT_PARTITIONS)), offsets
    return Rate(count / elapsed, cpu / count * 1e6)


# -- (c) transactions


def transactions(server: Server, name: str, topic: str, count: int) -> Rate:
    """librdkafka, one transactional producer: begin, ten records, commit. The CPU is that of a transaction, in µs."""
    producer = Producer({"bootstrap.servers": server.address, "transactional.id": name})
    producer.init_transactions(_LIMIT_SECONDS)
    _transact(producer, topic)  # its first one also asks for metadata
    cpu, started = server.cpu_seconds, time.perf_counter()
    for _ in range(count):
        _transact(producer, topic)
    elapsed = time.perf_counter() - started
    return Rate(count / elapsed, (server.cpu_seconds - cpu) / count * 1e6)


def _transact(producer: Producer, topic: str) -> None:
    failures: list[object] = []
    producer.begin_transaction()
    for number in range(RECORDS_PER_TRANSACTION):
        producer.produce(
            topic,
            b"x" * 100,
            partition=number % 2,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    producer.commit_transaction(_LIMIT_SECONDS)
    assert not failures, failures


# -- (d) a restart


def fill_groups(server: Server, topic: str, count: int) -> list[tuple[bytes, bytes]]:
    """Each of ``count`` groups commits 100 offsets. Returns the question for them, and the right answer, per group."""
    known: list[tuple[bytes, bytes]] = []
    with RawClient(server.address, timeout_s=_LIMIT_SECONDS) as client:
        await_coordinator(client, "any")
        for number in range(count):
            commits = Commits(f"group-{number}", topic)
            request, question = commits.request(number), commits.question()
            patiently(partial(_exchange, client, request), _is_committed)
            answer = _exchange(client, question)
            found = decode_response(Api.OFFSET_FETCH, 8, answer).groups[0].topics[0].partitions
            assert [each.committed_offset for each in found] == list(range(number, number + COMMIT_PARTITIONS))
            known.append((question, answer))
    return known


def until_all_answer(server: Server, known: list[tuple[bytes, bytes]]) -> float:
    """Seconds from the start of the process until each group has given its right answer."""
    with ExitStack() as stack:
        client: RawClient | None = None
        for question, right in known:
            until = time.perf_counter() + _LIMIT_SECONDS
            while True:
                try:
                    if client is None:
                        client = stack.enter_context(RawClient(server.address, timeout_s=_LIMIT_SECONDS))
                    if _exchange(client, question) == right:
                        break
                except (ClosedByPeer, ConnectionError):
                    client = None
                assert time.perf_counter() < until, "a group does not get its offsets back"
                time.sleep(0.002)
    return time.perf_counter() - server.started
