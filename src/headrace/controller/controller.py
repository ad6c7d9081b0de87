"""The controller's shell: who is controller, what it hears of, and what it is asked."""

# ruff: noqa: ARG002  a skeleton

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.controller.decisions import Election
from headrace.controller.queue import EventTimes
from headrace.controller.reassignments import Assignment
from headrace.controller.requests import (
    Channel,
    LeadersAnswer,
    Request,
    StopAnswer,
)
from headrace.coordination.interface import Coordination
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import KafkaError, NotController
from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer

__all__ = ["Channel", "Controller", "ControllerSettings"]

NO_CONTROLLER = -1


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings under Kafka's names; see ``broker/configs/table_cluster.py``."""

    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_s: int = 300
    leader_imbalance_per_broker_percentage: int = 10
    delete_topic_enable: bool = True
    #: Asked whenever it matters, as it can change: ``unclean.leader.election.enable`` of the brokers.
    is_unclean_by_default: Callable[[], bool] = lambda: False


class Controller:
    """One a broker; at most one of a cluster is active."""

    def __init__(
        self,
        broker_id: int,
        coordination: Coordination,
        clock: Clock,
        timer: Timer,
        channel: Channel,
        settings: ControllerSettings,
        *,
        register: Callable[[], Awaitable[None]],
    ) -> None:
        """``register`` makes the broker's registration in a new session; before :meth:`start` it was made already."""
        self.broker_id = broker_id
        #: By the name of an event, how long they waited and took.
        self.event_times: Mapping[str, EventTimes] = {}
        #: The last that was seen, or -1.
        self.active_controller_id = NO_CONTROLLER

    async def start(self) -> None:
        """Returns at once; that we stand for election is the first event."""

    async def stop(self) -> None:
        """Events end, and we are not controller any more. ``/controller`` goes with the session."""

    @property
    def is_active(self) -> bool:
        return False

    @property
    def epoch(self) -> int:
        """Of the controller, if we are it; else -1."""
        return -1

    def answered(self, request: Request, answer: LeadersAnswer | StopAnswer) -> None:
        """A broker has answered; called by the channel."""

    def unclean_election_changed(self, topic: str | None = None) -> None:
        """The configs of a topic have changed, or those of all brokers: it is read again whether unclean elections are
        allowed. Does nothing if we are not controller."""

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """A broker asks to go; the partitions that it still leads.

        :raises NotController:
        :raises BrokerNotAvailable: if it does not live.
        :raises StaleBrokerEpoch: if one that was before it asked.
        """
        raise NotController(f"broker {self.broker_id} is not controller")

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, how: Election
    ) -> dict[TopicPartition, KafkaError | None]:
        """``PREFERRED`` or ``UNCLEAN``. Of all partitions (None), those that need no election are not in the answer.

        :raises NotController:
        """
        raise NotController(f"broker {self.broker_id} is not controller")

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, may_change_count: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move partitions; None cancels.

        :raises NotController:
        """
        raise NotController(f"broker {self.broker_id} is not controller")

    def reassignments(self, wanted: Iterable[TopicPartition] | None) -> dict[TopicPartition, Assignment]:
        """Those of the partitions, or of all (None), that are moving.

        :raises NotController:
        """
        raise NotController(f"broker {self.broker_id} is not controller")
