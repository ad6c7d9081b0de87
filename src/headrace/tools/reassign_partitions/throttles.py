"""The throttles of a reassignment: settings of the topics that move, and of the brokers that copy them.

A topic's setting names the throttled replicas. A broker's setting limits their bytes per second. The settings are
removed when the reassignment is done. After a crash of the command they remain until ``--verify`` removes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.client.admin.types import ConfigChange, ConfigResource
from headrace.client.types import TopicPartition
from headrace.tools.reassign_partitions.plan import Move, brokers_of, follower_throttles, leader_throttles
from headrace.tools.shared.commands import Output

if TYPE_CHECKING:
    from headrace import Admin

_LEADER_RATE = "leader.replication.throttled.rate"
_FOLLOWER_RATE = "follower.replication.throttled.rate"
_LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_LEADER_REPLICAS = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


def throttle(admin: Admin, moves: Mapping[TopicPartition, Move], rate: int, out: Output) -> None:
    """Limits copying between brokers to this many bytes per second."""
    leaders, followers = leader_throttles(moves), follower_throttles(moves)
    changes: dict[ConfigResource, list[ConfigChange]] = {}
    for topic in leaders.keys() | followers.keys():
        both = ((_LEADER_REPLICAS, leaders.get(topic)), (_FOLLOWER_REPLICAS, followers.get(topic)))
        changes[ConfigResource("topic", topic)] = [ConfigChange(name, value) for name, value in both if value]
    for broker_id in brokers_of(moves):
        resource = ConfigResource("broker", str(broker_id))
        changes[resource] = [ConfigChange(name, str(rate)) for name in (_LEADER_RATE, _FOLLOWER_RATE)]
    admin.alter_configs(changes).all()
    out.say(f"The inter-broker throttle limit was set to {rate} B/s")


def throttle_log_dirs(admin: Admin, broker_ids: Iterable[int], rate: int, out: Output) -> None:
    """Limits copying between the log dirs of a broker."""
    change = [ConfigChange(_LOG_DIR_RATE, str(rate))]
    admin.alter_configs({ConfigResource("broker", str(each)): change for each in sorted(set(broker_ids))}).all()
    out.say(f"The replica-alter-dir throttle limit was set to {rate} B/s")


def clear(admin: Admin, broker_ids: Iterable[int], topics: Iterable[str], out: Output) -> None:
    """Removes all throttles."""
    brokers, names = sorted(set(broker_ids)), sorted(set(topics))
    out.say(f"Clearing broker-level throttles on broker{_s(brokers)} {','.join(map(str, brokers))}")
    _delete(admin, "broker", map(str, brokers), (_LEADER_RATE, _FOLLOWER_RATE, _LOG_DIR_RATE))
    out.say(f"Clearing topic-level throttles on topic{_s(names)} {','.join(names)}")
    _delete(admin, "topic", names, (_LEADER_REPLICAS, _FOLLOWER_REPLICAS))


def _delete(admin: Admin, kind: str, names: Iterable[str], settings: Iterable[str]) -> None:
    changes = [ConfigChange(setting, None, "delete") for setting in settings]
    resources = [ConfigResource("broker" if kind == "broker" else "topic", name) for name in names]
    if resources:
        admin.alter_configs(dict.fromkeys(resources, changes)).all()


def _s(items: list[int] | list[str]) -> str:
    return "" if len(items) == 1 else "s"
