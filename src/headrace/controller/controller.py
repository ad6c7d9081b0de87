"""The controller's shell: takes part in the controller election, queues events, and answers requests.

Every broker has a :class:`Controller`. At most one broker of a cluster is the active controller. All brokers watch
``/controller``. The broker that creates ``/controller`` starts an :class:`ActiveController` (``active_controller.py``).
The active controller reads the znode tree and sends its content to the brokers. From then on every change is an event
in one queue (``events.py``, ``event_queue.py``). Events are processed one after the other.

A broker stops being the active controller when another session owns ``/controller``, when ZooKeeper rejects a write
because the controller epoch has changed, or when the ZooKeeper session ends. The broker then discards everything that
the active controller knew. A crash discards the same. So there is only one way to start: read everything.

When the session is lost, the events in the queue are discarded, because they may describe an old state of the tree. In
the next session the broker registers again and takes part in the election again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from logging import getLogger
from typing import TypeVar

from headrace.controller import controller_election
from headrace.controller.active_controller import ActiveController, ControllerSettings
from headrace.controller.decisions import topic_deletions
from headrace.controller.decisions.broker_requests import (
    Channel,
    LeaderAndIsr,
    LeaderAndIsrResponse,
    Request,
    StopReplica,
    StopReplicaResponse,
)
from headrace.controller.decisions.leader_elections import ElectionStrategy
from headrace.controller.decisions.partition_states import ControllerPartitionState
from headrace.controller.decisions.reassignments import Assignment
from headrace.controller.event_queue import EventQueue, EventTimes
from headrace.controller.events import (
    IDLE,
    STATE_NUMBERS,
    ApiPartitionReassignment,
    AutoPreferredReplicaLeaderElection,
    ControlledShutdown,
    ControllerChange,
    Event,
    Expire,
    LeaderAndIsrResponseReceived,
    Reelect,
    RegisterBrokerAndReelect,
    ReplicaLeaderElection,
    RequestEvent,
    Startup,
    TopicDeletionStopReplicaResponseReceived,
    TopicUncleanLeaderElectionEnable,
    UncleanLeaderElectionEnable,
)
from headrace.controller.fenced_writer import ControllerMoved
from headrace.coordination.interface import (
    Coordination,
    CoordinationError,
    EventType,
    SessionExpiredError,
    SessionState,
    WatchEvent,
)
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import KafkaError, NotController, StaleControllerEpoch, UnknownServerError
from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer, TimerTask

__all__ = ["NO_CONTROLLER", "Channel", "Controller", "ControllerSettings"]

logger = getLogger(__name__)

T = TypeVar("T")
#: As a controller's id or epoch: none that we know of.
NO_CONTROLLER = NO_EPOCH = -1
#: A new controller lets brokers come back first.
_FIRST_REBALANCE_MS = 5_000
_REGISTER_AGAIN_MS = _STAND_AGAIN_MS = 1_000


class Controller:
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
        """``register`` makes the broker's registration in a new session, and returns when it is made."""
        self.broker_id = broker_id
        #: The last that was seen, or -1.
        self.active_controller_id = NO_CONTROLLER
        self._coordination = coordination
        self._clock = clock
        self._timer = timer
        self._channel = channel
        self._settings = settings
        self._register = register
        self._term: ActiveController | None = None
        self._rebalance: TimerTask | None = None
        self._past_unclean_elections = 0
        self._is_started = False
        self._is_abstaining = False
        self._session_id = coordination.session_id
        self._queue = EventQueue(self._process, self._preempt)

    async def start(self, *, registered_in: int | None = None) -> None:
        """Returns at once; deletion_state for election is the first event.

        :param registered_in: the session in which the broker was registered, if that may be over by now.
        """
        assert not self._is_started, "started already"
        self._is_started = True
        self._session_id = self._coordination.session_id
        self._coordination.add_session_listener(self._session_changed)
        is_registered = registered_in in (None, self._session_id)
        self._queue.put(Startup() if is_registered else RegisterBrokerAndReelect())
        self._queue.start()

    async def stop(self) -> None:
        """Whatever is under way ends here; the next controller takes it up. ``/controller`` goes with the session."""
        if self._is_started:
            self._coordination.remove_session_listener(self._session_changed)
            self._is_started = False
        await self._queue.close()
        self._resign()

    @property
    def is_active(self) -> bool:
        return self._term is not None

    @property
    def epoch(self) -> int:
        """Of the controller, if we are it; else -1."""
        return NO_EPOCH if self._term is None else self._term.epoch

    # What is asked

    def answered(self, request: Request, answer: LeaderAndIsrResponse | StopReplicaResponse) -> None:
        """A broker has answered; called by the channel. Of UpdateMetadata nothing is to be known."""
        if isinstance(request, LeaderAndIsr) and isinstance(answer, LeaderAndIsrResponse):
            self._queue.put(LeaderAndIsrResponseReceived(request, answer))
        elif (
            isinstance(request, StopReplica)
            and isinstance(answer, StopReplicaResponse)
            and any(one.is_deleted for one in request.partitions)
        ):
            self._queue.put(TopicDeletionStopReplicaResponseReceived(request, answer))

    def unclean_election_changed(self, topic: str | None = None) -> None:
        """The configs of a topic have changed, or those of all brokers (None): it is looked up again whether unclean
        elections are allowed. To be called on every broker; it matters to the controller alone."""
        self._queue.put(UncleanLeaderElectionEnable() if topic is None else TopicUncleanLeaderElectionEnable(topic))

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """A broker asks to go; the partitions that it still leads.

        :raises NotController:
        :raises BrokerNotAvailable: if it does not live.
        :raises StaleBrokerEpoch: if one that was before it asked.
        """
        return await self._ask(lambda reply: ControlledShutdown(reply, broker_id, broker_epoch))

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, how: ElectionStrategy
    ) -> dict[TopicPartition, KafkaError | None]:
        """``PREFERRED`` or ``UNCLEAN``. Of all partitions (None), those that need no election are not in the answer.

        :raises NotController:
        """
        wanted = None if partitions is None else list(partitions)
        return await self._ask(lambda reply: ReplicaLeaderElection(reply, wanted, how))

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, may_change_count: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move partitions; None cancels. Returns when the moves have begun; by partition what is wrong with it.

        :raises NotController:
        """
        wanted = dict(targets)
        return await self._ask(lambda reply: ApiPartitionReassignment(reply, wanted, may_change_count))

    def reassignments(self) -> dict[TopicPartition, Assignment]:
        """The partitions that are moving.

        :raises NotController:
        """
        if self._term is None:
            raise self._not_controller()
        context = self._term.context
        return {one: context.assignment(one) for one in context.moving_partitions}

    async def _ask(self, event: Callable[[asyncio.Future[T]], RequestEvent[T]]) -> T:
        if self._term is None:
            raise self._not_controller()
        reply: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put(event(reply))
        return await reply

    def _not_controller(self) -> NotController:
        return NotController(f"broker {self.broker_id} is not the controller")

    # Events

    async def _process(self, event: Event) -> None:
        try:
            await self._handle(event)
        except (ControllerMoved, StaleControllerEpoch) as error:
            logger.info("broker %d is no longer controller: %s", self.broker_id, error)
            self._preempt(event)
            self._resign()
            self._queue.put(Reelect())
        except SessionExpiredError as error:
            # Expire is in the queue already.
            logger.info("%s could not be handled: %s", event.name, error)
            self._preempt(event)
        except CoordinationError as error:
            # What of it is in the tree nobody knows, and what we know may be wrong: the next controller reads all.
            logger.error("%s could not be handled: %r", event.name, error)
            if isinstance(event, RequestEvent):
                event.fail(UnknownServerError(repr(error)))
            await self._step_aside()
        except Exception as error:
            if isinstance(event, RequestEvent):
                event.fail(UnknownServerError(repr(error)))
            raise

    async def _handle(self, event: Event) -> None:
        match event:
            case Startup() | ControllerChange() | Reelect():
                await self._reelect()
            case Expire():
                self._resign()
                self.active_controller_id = NO_CONTROLLER
            case RegisterBrokerAndReelect():
                await self._register_again()
            case _ if self._term is None:
                self._preempt(event)
            case AutoPreferredReplicaLeaderElection():
                try:
                    await self._term.handle(event)
                finally:
                    self._schedule_rebalance(self._settings.leader_imbalance_check_interval_seconds * 1000)
            case _:
                await self._term.handle(event)

    async def _register_again(self) -> None:
        session_id = self._coordination.session_id
        try:
            await self._register()
        except SessionExpiredError:
            raise
        except Exception:
            logger.exception("broker %d cannot be registered; it is tried again", self.broker_id)
            self._timer.schedule(_REGISTER_AGAIN_MS, lambda: self._register_later(session_id))
        else:
            await self._reelect()

    def _register_later(self, session_id: int) -> None:
        """Unless the next session has begun, which brings an event of its own."""
        if self._is_started and self._session_id == session_id:
            self._queue.put(RegisterBrokerAndReelect())

    def _preempt(self, event: Event) -> None:
        if isinstance(event, RequestEvent):
            event.fail(self._not_controller())

    def _session_changed(self, state: SessionState) -> None:
        session_id = self._coordination.session_id
        if state is SessionState.LOST:
            self._session_id = NO_CONTROLLER
            self._queue.clear_and_put(Expire())
        elif state is SessionState.CONNECTED and session_id != self._session_id:
            self._session_id = session_id
            self._queue.put(RegisterBrokerAndReelect())

    def _controller_changed(self, event: WatchEvent) -> None:
        self._queue.put(Reelect() if event.type is EventType.DELETED else ControllerChange())

    # Who is controller

    async def _reelect(self) -> None:
        """See who is controller, and if nobody is, stand for it."""
        while True:
            holder = await controller_election.read_controller(self._coordination, self._controller_changed)
            self.active_controller_id = NO_CONTROLLER if holder is None else holder.broker_id
            if holder is not None and holder.is_ours and self._term is not None:
                return
            self._resign()
            if holder is None:
                if self._is_abstaining:
                    return
                won = await controller_election.run_for_controller(
                    self._coordination, self.broker_id, self._clock.wall_ms()
                )
                if won is not None:
                    await self._take_office(won)
                    return
            elif holder.is_ours:
                # The epoch was changed under us, by hand: with the next one it goes on.
                await controller_election.resign(self._coordination)
            else:
                return

    async def _take_office(self, won: controller_election.ControllerEpoch) -> None:
        logger.info("broker %d is the controller, in epoch %d", self.broker_id, won.epoch)
        term = ActiveController(self.broker_id, won, self._coordination, self._channel, self._settings, self._queue.put)
        try:
            await term.load()
            self._term = term
            self.active_controller_id = self.broker_id
            await term.begin()
        except (ControllerMoved, StaleControllerEpoch, SessionExpiredError):
            raise
        except Exception:
            logger.exception("broker %d cannot be the controller", self.broker_id)
            await self._step_aside()
            return
        self._schedule_rebalance(_FIRST_REBALANCE_MS)

    async def _step_aside(self) -> None:
        """We failed, and others shall try; if nobody else does, we again a little later."""

        def stand_again() -> None:
            self._is_abstaining = False
            self._queue.put(Reelect())

        self._resign()
        self._is_abstaining = True
        self._timer.schedule(_STAND_AGAIN_MS, stand_again)
        try:
            await controller_election.resign(self._coordination)
        except CoordinationError as error:  # then /controller is given back before we stand again
            logger.warning("broker %d cannot step down now: %r", self.broker_id, error)

    def _resign(self) -> None:
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None
        if self._term is not None:
            logger.info("broker %d resigns as controller of epoch %d", self.broker_id, self._term.epoch)
            self._past_unclean_elections += self._term.context.unclean_elections
            self._term = None
            self._channel.close()

    def _schedule_rebalance(self, delay_ms: int) -> None:
        if self._settings.auto_leader_rebalance_enable and self._term is not None:
            self._rebalance = self._timer.schedule(
                delay_ms, lambda: self._queue.put(AutoPreferredReplicaLeaderElection())
            )

    # Metrics, under Kafka's names. May be asked on another thread.

    @property
    def event_times(self) -> Mapping[str, EventTimes]:
        """By the name of an event, how long they waited and took."""
        return self._queue.times

    @property
    def event_queue_size(self) -> int:
        return len(self._queue)

    @property
    def state(self) -> str:
        """The name of the event that is being handled, or ``Idle``."""
        return "Idle" if (event := self._queue.current) is None else event.name

    @property
    def state_number(self) -> int:
        """The same as Kafka's metrics have it."""
        return IDLE if (event := self._queue.current) is None else STATE_NUMBERS[type(event)]

    @property
    def unclean_elections_count(self) -> int:
        """In all terms of this broker."""
        now = 0 if (term := self._term) is None else term.context.unclean_elections
        return self._past_unclean_elections + now

    @property
    def active_controller_count(self) -> int:
        return int(self.is_active)

    @property
    def active_broker_count(self) -> int:
        return 0 if (term := self._term) is None else len(term.context.brokers)

    @property
    def global_topic_count(self) -> int:
        return 0 if (term := self._term) is None else len(term.context.topics)

    @property
    def global_partition_count(self) -> int:
        return 0 if (term := self._term) is None else term.context.partition_count

    @property
    def offline_partitions_count(self) -> int:
        if (term := self._term) is None:
            return 0
        return term.context.count_in(ControllerPartitionState.NEW, ControllerPartitionState.OFFLINE)

    @property
    def preferred_replica_imbalance_count(self) -> int:
        return 0 if (term := self._term) is None else term.context.count_not_preferred()

    @property
    def topics_to_delete_count(self) -> int:
        return 0 if (term := self._term) is None else len(term.context.topics_to_delete)

    @property
    def replicas_to_delete_count(self) -> int:
        return 0 if (term := self._term) is None else len(topic_deletions.replicas_to_delete(term.context))

    @property
    def topics_ineligible_to_delete_count(self) -> int:
        return 0 if (term := self._term) is None else len(topic_deletions.ineligible_topics(term.context))

    @property
    def replicas_ineligible_to_delete_count(self) -> int:
        return 0 if (term := self._term) is None else len(topic_deletions.ineligible_replicas(term.context))
