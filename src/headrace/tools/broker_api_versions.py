"""``headrace broker-api-versions``: shows the APIs and versions of brokers, and which version our clients would use."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.client.admin.types import BrokerVersions, VersionRange
from headrace.protocol.api import Api, versions_of
from headrace.tools.shared.commands import DONE, FAILED, Output, Table, connect, new_parser, run

_EXAMPLES = """
headrace broker-api-versions
headrace broker-api-versions --bootstrap-server kafka1:9092 --json
"""
#: APIs that only brokers and controllers send to each other. The command does not report that a broker lacks one.
_BETWEEN_BROKERS = frozenset({4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})
#: APIs that our clients never send.
_NOT_OURS = {
    55: "DescribeQuorum", 57: "UpdateFeatures", 64: "UnregisterBroker", 71: "GetTelemetrySubscriptions",
    72: "PushTelemetry", 74: "ListConfigResources", 76: "ShareGroupHeartbeat", 77: "ShareGroupDescribe",
    78: "ShareFetch", 79: "ShareAcknowledge", 80: "AddRaftVoter", 81: "RemoveRaftVoter",
    83: "InitializeShareGroupState", 84: "ReadShareGroupState", 85: "WriteShareGroupState",
    86: "DeleteShareGroupState", 87: "ReadShareGroupStateSummary", 88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe", 90: "DescribeShareGroupOffsets", 91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
}  # fmt: skip


class ApiSupport(NamedTuple):
    """The versions of an API that a broker supports (None: no version).

    ``usable`` is the version that our clients send.
    """

    key: int
    name: str
    theirs: VersionRange | None
    usable: int | None

    def __str__(self) -> str:
        if self.theirs is None:
            return f"{self.name}({self.key}): UNSUPPORTED"
        lowest, highest = self.theirs
        versions = str(lowest) if lowest == highest else f"{lowest} to {highest}"
        usable = f"[usable: {self.usable}]" if self.usable is not None else "[unusable]"
        return f"{self.name}({self.key}): {versions} {usable}"


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    return new_parser("broker-api-versions", "Show which versions of each API brokers support.", _EXAMPLES)


def _work(options: Namespace, out: Output) -> int:
    with connect(options) as admin:
        nodes = {broker.id: broker for broker in admin.describe_cluster().brokers}
        results = admin.api_versions(nodes)
    brokers = {broker_id: list(support_of(found)) for broker_id, found in results.ok.items()}
    names = {
        node.id: f"{node.host}:{node.port} (id: {node.id} rack: {node.rack or 'null'} isFenced: false)"
        for node in nodes.values()
    }
    out.show(
        [
            {
                "broker": broker_id,
                "host": nodes[broker_id].host,
                "port": nodes[broker_id].port,
                "apis": [
                    {
                        "key": each.key,
                        "name": each.name,
                        "min": None if each.theirs is None else each.theirs.lowest,
                        "max": None if each.theirs is None else each.theirs.highest,
                        "usable": each.usable,
                    }
                    for each in apis
                ],
            }
            for broker_id, apis in brokers.items()
        ],
        (line for broker_id, apis in brokers.items() for line in _lines(names[broker_id], apis)),
        Table(
            ("BROKER", "API", "KEY", "VERSIONS", "USABLE"),
            [
                (broker_id, each.name, each.key, "{}-{}".format(*each.theirs) if each.theirs else "-", each.usable)
                for broker_id, apis in brokers.items()
                for each in apis
            ],
        ),
    )
    for broker_id, error in results.errors.items():
        out.say(f"{names[broker_id]} -> ERROR: {error}")
    return FAILED if results.errors else DONE


def support_of(found: BrokerVersions) -> Iterator[ApiSupport]:
    """Every API that the broker has, or that a client could ask for."""
    ours = {int(api): api for api in Api}
    for key in sorted(found.apis.keys() | (ours.keys() - _BETWEEN_BROKERS)):
        theirs, api = found.apis.get(key), ours.get(key)
        usable = None
        if theirs is not None and api is not None:
            versions = versions_of(api)
            highest = min(theirs.highest, versions[-1])
            usable = highest if highest >= max(theirs.lowest, versions[0]) else None
        yield ApiSupport(key, _NOT_OURS.get(key, "UNKNOWN") if api is None else api.label, theirs, usable)


def _lines(name: str, apis: Sequence[ApiSupport]) -> Iterator[str]:
    yield f"{name} -> ("
    for each in apis[:-1]:
        yield f"\t{each},"
    yield f"\t{apis[-1]}"
    yield ")"
