"""Who leads a partition next. Values in, values out: nothing here reads the cluster or writes to it.

=====================  ===============================================================================================
the first leader       of a new partition: its first replica that is online; all that are online are in sync
offline                the leader is gone: the first replica that is in sync and online. Where there is none and the
                       topic allows it (unclean), the first that is online, which then is the only one in sync and must
                       recover (KIP-704): what only the others had is lost
preferred              the first replica of the assignment, if it is in sync and online (KIP-460)
reassignment           the first of the target's replicas that is in sync and online
controlled shutdown    the first replica that is in sync, online and not itself shutting down; those that are shutting
                       down leave the ISR
=====================  ===============================================================================================

"First" is always by the order of the assignment. Every election makes the next leader epoch, so that a leader that does
not know of it is refused. An election that changes nothing is refused too, rather than disturbing the partition.
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

#: As a leader: there is none.
NO_LEADER = -1
FIRST_LEADER_EPOCH = 0


class Leadership(NamedTuple):
    """A partition's ``state`` znode, and its version there: who changes it must still find that version."""

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
        """The same leader and ISR, announced anew."""
        return self._replace(leader_epoch=self.leader_epoch + 1, controller_epoch=controller_epoch)

    def without(self, gone: Container[int], controller_epoch: int) -> "Leadership | None":
        """After replicas went offline; None if that changes nothing.

        If all that are in sync are gone, they stay in the ISR: they are those that have all the data. (Kafka keeps the
        last one only. But as the ISR was not changed before, nothing was acknowledged that one of them lacks.)
        """
        leader = NO_LEADER if self.leader in gone else self.leader
        isr = tuple(replica for replica in self.isr if replica not in gone) or self.isr
        if leader == self.leader and isr == self.isr:
            return None
        return self.next_epoch(controller_epoch)._replace(leader=leader, isr=isr)


class ElectionStrategy(Enum):
    OFFLINE = "offline"
    #: A client asks for a leader at any price.
    UNCLEAN = "unclean"
    PREFERRED = "preferred"
    REASSIGNED = "reassigned"
    SHUTDOWN = "controlled shutdown"


class Refusal(Enum):
    """Why nobody was elected."""

    NOT_NEEDED = "the leader is already the one wanted"
    NO_REPLICA_ONLINE = "no replica is online"
    NO_REPLICA_IN_SYNC = "no replica in sync is online, and an unclean election is not allowed"
    PREFERRED_NOT_IN_SYNC = "the preferred replica is not online or not in sync"
    TARGET_NOT_IN_SYNC = "no replica of the reassignment's target is in sync and online"
    NO_OTHER_IN_SYNC = "no replica in sync is on a broker that stays"
    NOT_IN_SYNC = "the replica was not in sync"
    STATE_GONE = "its state is no longer in the tree"

    def error(self, partition: object) -> KafkaError:
        """As a client is told."""
        kind: type[KafkaError] = EligibleLeadersNotAvailable
        if self is Refusal.NOT_NEEDED:
            kind = ElectionNotNeeded
        elif self is Refusal.PREFERRED_NOT_IN_SYNC:
            kind = PreferredLeaderNotAvailable
        return kind(f"{partition} has no new leader: {self.value}")


class Elected(NamedTuple):
    leadership: Leadership
    #: The replicas that are to hear of it.
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
    """``unclean``: whether a replica that is not in sync may lead when there is no other."""
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
    """``online`` has those that are ``stopping``, too: they are told."""
    recipients = tuple(replica for replica in replicas if replica in online)
    leader = next((one for one in recipients if one in current.isr and one not in stopping), None)
    if leader is None:
        return Refusal.NO_OTHER_IN_SYNC
    isr = tuple(replica for replica in current.isr if replica not in stopping)
    return Elected(current.next_epoch(controller_epoch)._replace(leader=leader, isr=isr), recipients)


def imbalanced_partitions(
    leaders: Iterable[tuple[TopicPartition, int, int]], allowed_percentage: int
) -> list[TopicPartition]:
    """Partitions that are to go back to their preferred leader, for ``auto.leader.rebalance.enable``.

    ``leaders`` has each partition with its preferred and its present leader. A broker's partitions are named when more
    than ``leader.imbalance.per.broker.percentage`` of those that prefer it are led by others.
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
