"""The action that makes the first replica of partitions their leader again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.client.errors import BrokerError, ErrorCode
from headrace.client.types import TopicPartition
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.group_fields import texts
from headrace.console.actions.topic_fields import NEW_TOPIC
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields
from headrace.console.request import ConsoleRequest

_MOST_ROWS = 200


def _wanted(request: ConsoleRequest) -> list[TopicPartition] | None:
    """The one partition, or None for all."""
    topic, partition = request.text("topic"), request.number_or_none("partition")
    if bool(topic) != (partition is not None):
        raise BadFields({"partition": "give a topic and a partition, or neither"}, texts(request))
    return None if partition is None else [TopicPartition(topic, partition)]


async def preview(request: ConsoleRequest) -> Preview:
    wanted = _wanted(request)
    rows = [
        (
            f"{topic.name}-{each.partition}",
            str(each.leader_id),
            str(each.replicas[0]),
            _note(each.in_sync_replicas, each.replicas[0]),
        )
        for topic in (await request.cluster.topics()).values()
        for each in topic.partitions
        if each.replicas and each.leader_id != each.replicas[0]
        if wanted is None or TopicPartition(topic.name, each.partition) in wanted
    ]
    return Preview(
        (f"{len(rows)} partitions are not led by their first replica.",),
        ("partition", "leader now", "leader then", "note"),
        tuple(rows[:_MOST_ROWS]),
    )


def _note(in_sync: tuple[int, ...], first: int) -> str:
    return "" if first in in_sync else "not in sync, so it cannot lead yet"


async def run(request: ConsoleRequest) -> Done:
    """Elects the first replica as the leader: of one partition, or of all that have another leader."""
    results = await request.cluster.admin.elect_leaders("preferred", _wanted(request))
    failed = [error for error in results.errors.values() if not _is_needless(error)]
    if failed:
        raise failed[0]
    return Done(f"{len(results.ok)} partitions have their preferred leader again.", "/cluster#leaders")


def _is_needless(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code is ErrorCode.election_not_needed


def command_line(values: Mapping[str, Value]) -> list[str]:
    words = ["headrace", "leader-election", "--election-type", "preferred"]
    if values["topic"]:
        return [*words, "--topic", str(values["topic"]), "--partition", str(values["partition"])]
    return [*words, "--all-topic-partitions"]


ACTION = Action(
    "elect-preferred-leaders",
    "Elect preferred leaders",
    "Elect the leaders",
    (
        replace(NEW_TOPIC, label="Topic", is_required=False, help="empty: all topics"),
        Field("partition", kind="number", default=None, least=0, most=2**31 - 1, help="empty: all partitions"),
    ),
    run,
    command_line,
    preview,
    section="/cluster",
)
