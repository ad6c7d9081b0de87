"""Chooses the next leader of a partition. Pure functions: nothing here reads the cluster or writes to it.

=====================  ===============================================================================================
first leader           A new partition gets its first online replica. All online replicas form the ISR
offline                The leader failed: the first replica that is in sync and online. If there is none and the topic
                       allows unclean elections, the first replica that is online. That replica is then the only one in
                       the ISR and must recover (KIP-704). Records that only the other replicas had are lost
preferred              The first replica of the assignment, if it is in sync and online (KIP-460)
reassignment           The first replica of the target that is in sync and online
controlled shutdown    The first replica that is in sync, online and not on a broker that is shutting down. Replicas on
                       brokers that are shutting down leave the ISR
=====================  ===============================================================================================

"First" always means the order of the assignment. Every election increments the leader epoch, so that requests of a
leader that was replaced are rejected. An election that would change nothing is refused, so that it does not disturb the
partition.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from headrace.coordination.znodes import PartitionState, TopicPartition
from headrace.protocol.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KafkaError,
    PreferredLeaderNotAvailable,
)

#: As a leader: the partition has no leader.
NO_LEADER = -1
FIRST_LEADER_EPOCH = 0


class Leadership(NamedTuple):
    """The content of a partition's ``state`` znode, and the znode's version. A write must still find that version."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int = 0
    is_recovering: bool = False

    @classmethod
    def of(cls, state: PartitionState, version: int) -> "Leadership":
        return cls(
            state.leader, state.leader_epoch, tuple(state.isr), state.controller_epoch, version, state.is_recovering
        )

    def to_state(self) -> PartitionState:
        return PartitionState(self.leader, self.leader_epoch, self.isr, self.controller_epoch, self.is_recovering)

    def next_epoch(self, controller_epoch: int) -> "Leadership":
        """The same leader and ISR in the next leader epoch."""
        return self._replace(leader_epoch=self.leader_epoch + 1, controller_epoch=controller_epoch)

    def without(self, gone: Container[int], controller_epoch: int) -> "Leadership | None":
        """The leadership after replicas went offline; None if nothing changes.

        If all replicas of the ISR are offline, all of them stay in the ISR, because each of them has all committed
        records. (Kafka keeps only the last one. But the ISR did not change before, so no record was acknowledged that
        one of them lacks.)
        """
        leader = NO_LEADER if self.leader in gone else self.leader
        isr = tuple(replica for replica in self.isr if replica not in gone) or self.isr
        if leader == self.leader and isr == self.isr:
            return None
        return self.next_epoch(controller_epoch)._replace(leader=leader, isr=isr)


class ElectionStrategy(Enum):
    OFFLINE = "offline"
    #: A client requests a leader, even if records are lost.
    UNCLEAN = "unclean"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


class Refusal(Enum):
    """Why no leader was elected, or the state was not changed."""

    NOT_NEEDED = "the partition already has this leader"
    NO_REPLICA_ONLINE = "no replica is online"
    NO_REPLICA_IN_SYNC = "no in-sync replica is online, and unclean.leader.election.enable is false"
    PREFERRED_NOT_IN_SYNC = "the preferred replica is not online or not in sync"
    TARGET_NOT_IN_SYNC = "no replica of the reassignment's target is in sync and online"
    NO_OTHER_IN_SYNC = "no in-sync replica is on a broker that stays up"
    NOT_IN_SYNC = "the replica was not in sync"
    STATE_GONE = "the state of the partition was deleted from ZooKeeper"

    def error(self, partition: object) -> KafkaError:
        """The error that a client receives."""
        kind: type[KafkaError] = EligibleLeadersNotAvailable
        if self is Refusal.NOT_NEEDED:
            kind = ElectionNotNeeded
        elif self is Refusal.PREFERRED_NOT_IN_SYNC:
            kind = PreferredLeaderNotAvailable
        return kind(f"no new leader was elected for {partition}: {self.value}")


class Elected(NamedTuple):
    leadership: Leadership
    #: The replicas whose brokers get a LeaderAndIsr request.
    recipients: tuple[int, ...]
    #: The leader was not in sync.
    is_unclean: bool = False


ElectionOutcome: TypeAlias = Elected | Refusal


def elect_first_leader(replicas: Sequence[int], online: Container[int], controller_epoch: int) -> ElectionOutcome:
    in_sync = tuple(replica for replica in replicas if replica in online)
    if not in_sync:
        return Refusal.NO_REPLICA_ONLINE
    return Elected(Leadership(in_sync[0], FIRST_LEADER_EPOCH, in_sync, controller_epoch), in_sync)


def elect_offline(
    current: Leadership, replicas: Sequence[int], online: Container[int], controller_epoch: int, *, unclean: bool
) -> ElectionOutcome:
    """
    :param unclean: whether a replica that is not in sync may become the leader if there is no other candidate.
    """
    recipients = tuple(replica for replica in replicas if replica in online)
    if not recipients:
        return Refusal.NO_REPLICA_ONLINE
    following = current.next_epoch(controller_epoch)
    in_sync = tuple(replica for replica in current.isr if replica in online)
    leader = next((replica for replica in recipients if replica in in_sync), None)
    if leader is not None:
        return Elected(following._replace(leader=leader, isr=in_sync), recipients)
    if not unclean:
        return Refusal.NO_REPLICA_IN_SYNC
    recovering = following._replace(leader=recipients[0], isr=recipients[:1], is_recovering=True)
    return Elected(recovering, recipients, is_unclean=True)


def elect_preferred(
    current: Leadership, replicas: Sequence[int], online: Container[int], controller_epoch: int
) -> ElectionOutcome:
    preferred = replicas[0]
    if current.leader == preferred:
        return Refusal.NOT_NEEDED
    if preferred not in online or preferred not in current.isr:
        return Refusal.PREFERRED_NOT_IN_SYNC
    return Elected(current.next_epoch(controller_epoch)._replace(leader=preferred), tuple(replicas))


def elect_reassigned(
    current: Leadership, target: Sequence[int], online: Container[int], controller_epoch: int
) -> ElectionOutcome:
    leader = next((replica for replica in target if replica in online and replica in current.isr), None)
    if leader is None:
        return Refusal.TARGET_NOT_IN_SYNC
    return Elected(current.next_epoch(controller_epoch)._replace(leader=leader), tuple(target))


def elect_for_shutdown(
    current: Leadership,
    replicas: Sequence[int],
    online: Container[int],
    stopping: Container[int],
    controller_epoch: int,
) -> ElectionOutcome:
    """
    :param online: includes the replicas on brokers that are ``stopping``, because those brokers get the result, too.
    """
    recipients = tuple(replica for replica in replicas if replica in online)
    leader = next((one for one in recipients if one in current.isr and one not in stopping), None)
    if leader is None:
        return Refusal.NO_OTHER_IN_SYNC
    isr = tuple(replica for replica in current.isr if replica not in stopping)
    return Elected(current.next_epoch(controller_epoch)._replace(leader=leader, isr=isr), recipients)


def imbalanced_partitions(
    leaders: Iterable[tuple[TopicPartition, int, int]], allowed_percentage: int
) -> list[TopicPartition]:
    """The partitions to move back to their preferred leader, for ``auto.leader.rebalance.enable``.

    A broker's partitions are included when other brokers lead more than ``leader.imbalance.per.broker.percentage`` of
    the partitions that prefer this broker.

    :param leaders: each partition with its preferred leader and its current leader.
    """
    preferring: dict[int, int] = defaultdict(int)
    led_elsewhere: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, preferred, leader in leaders:
        preferring[preferred] += 1
        if leader != preferred:
            led_elsewhere[preferred].append(partition)
    return [
        partition
        for broker, partitions in sorted(led_elsewhere.items())
        if len(partitions) * 100 > allowed_percentage * preferring[broker]
        for partition in partitions
    ]
