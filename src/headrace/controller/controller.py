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
from headrace.controller.controller_metrics import ControllerMetrics
from headrace.controller.decisions.broker_requests import (
    Channel,
    LeaderAndIsr,
    LeaderAndIsrResponse,
    Request,
    StopReplica,
    StopReplicaResponse,
)
from headrace.controller.decisions.leader_elections import ElectionStrategy
from headrace.controller.decisions.reassignments import Assignment
from headrace.controller.event_queue import EventQueue
from headrace.controller.events import (
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
#: As a controller id or epoch: no controller is known.
NO_CONTROLLER = NO_EPOCH = -1
_NO_SESSION = -1
#: A new controller waits this long before the first rebalance, so that restarted brokers can register first.
_FIRST_REBALANCE_MS = 5_000
_REGISTER_AGAIN_MS = _ELECTION_PAUSE_MS = 1_000


class Controller:
    """A broker's part in the control of the cluster; the active controller if this broker won the election."""

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
        """:param register: creates the broker's registration in a new session, and returns when the znode exists."""
        self.broker_id = broker_id
        #: The id of the controller that was read last, or -1.
        self.active_controller_id = NO_CONTROLLER
        self._coordination = coordination
        self._clock = clock
        self._timer = timer
        self._channel = channel
        self._settings = settings
        self._register = register
        self._active: ActiveController | None = None
        self._rebalance: TimerTask | None = None
        self._is_started = False
        self._is_pausing = False
        self._session_id = coordination.session_id
        self._queue = EventQueue(self._process, self._preempt)
        self.metrics = ControllerMetrics(self._queue, lambda: self._active)

    async def start(self, *, registered_in: int | None = None) -> None:
        """Returns at once. The first event takes part in the controller election.

        :param registered_in: the id of the session in which the broker registered, if that session may have ended.
        """
        assert not self._is_started, "the controller was started before"
        self._is_started = True
        self._session_id = self._coordination.session_id
        self._coordination.add_session_listener(self._session_changed)
        is_registered = registered_in in (None, self._session_id)
        self._queue.put(Startup() if is_registered else RegisterBrokerAndReelect())
        self._queue.start()

    async def stop(self) -> None:
        """Ends all work in progress; the next controller continues it. ``/controller`` ends with the session."""
        if self._is_started:
            self._coordination.remove_session_listener(self._session_changed)
            self._is_started = False
        await self._queue.stop()
        self._stop_active()

    @property
    def is_active(self) -> bool:
        return self._active is not None

    @property
    def epoch(self) -> int:
        """The controller epoch if this broker is the active controller, else -1."""
        return NO_EPOCH if self._active is None else self._active.epoch

    # Requests

    def on_response(self, request: Request, response: LeaderAndIsrResponse | StopReplicaResponse) -> None:
        """Called by the channel with a broker's response. Responses to UpdateMetadata carry no information."""
        if isinstance(request, LeaderAndIsr) and isinstance(response, LeaderAndIsrResponse):
            self._queue.put(LeaderAndIsrResponseReceived(request, response))
        elif (
            isinstance(request, StopReplica)
            and isinstance(response, StopReplicaResponse)
            and any(one.is_deleted for one in request.partitions)
        ):
            self._queue.put(TopicDeletionStopReplicaResponseReceived(request, response))

    def unclean_election_changed(self, topic: str | None = None) -> None:
        """Reads again whether unclean elections are allowed, after the configs of a topic or of all brokers changed.

        Called on every broker. Only the active controller acts on it.

        :param topic: None for the configs of all brokers.
        """
        self._queue.put(UncleanLeaderElectionEnable() if topic is None else TopicUncleanLeaderElectionEnable(topic))

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Moves the leaderships of a broker that wants to stop; returns the partitions that the broker still leads.

        :raises NotController:
        :raises BrokerNotAvailable: if the broker is not alive.
        :raises StaleBrokerEpoch: if the request is from an earlier registration of the broker.
        """
        return await self._request(lambda reply: ControlledShutdown(reply, broker_id, broker_epoch))

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, strategy: ElectionStrategy
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects leaders by the strategy ``PREFERRED`` or ``UNCLEAN``; returns the error of each partition, or None.

        :param partitions: None for all. Then the result leaves out the partitions that need no election.
        :raises NotController:
        """
        requested = None if partitions is None else list(partitions)
        return await self._request(lambda reply: ReplicaLeaderElection(reply, requested, strategy))

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, may_change_count: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Starts to move partitions to other brokers; returns the error of each partition, or None.

        :param targets: the brokers that each partition is to have; None cancels the reassignment of the partition.
        :raises NotController:
        """
        requested = dict(targets)
        return await self._request(lambda reply: ApiPartitionReassignment(reply, requested, may_change_count))

    def reassignments(self) -> dict[TopicPartition, Assignment]:
        """The partitions that are being reassigned.

        :raises NotController:
        """
        if self._active is None:
            raise self._not_controller()
        context = self._active.context
        return {one: context.assignment(one) for one in context.moving_partitions}

    async def _request(self, event: Callable[[asyncio.Future[T]], RequestEvent[T]]) -> T:
        if self._active is None:
            raise self._not_controller()
        reply: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put(event(reply))
        return await reply

    def _not_controller(self) -> NotController:
        return NotController(
            f"broker {self.broker_id} is not the controller; send the request to the active controller"
        )

    # Events

    async def _process(self, event: Event) -> None:
        try:
            await self._handle(event)
        except (ControllerMoved, StaleControllerEpoch) as error:
            logger.info("broker %d is no longer controller: %s", self.broker_id, error)
            self._preempt(event)
            self._stop_active()
            self._queue.put(Reelect())
        except SessionExpiredError as error:
            # The event Expire is in the queue already.
            logger.info("the event %s was not processed: %s", event.name, error)
            self._preempt(event)
        except CoordinationError as error:
            # Some of the event's writes may be in ZooKeeper, so the context may be wrong. The next controller reads
            # everything again.
            logger.error("the event %s failed, so this broker resigns as controller: %r", event.name, error)
            if isinstance(event, RequestEvent):
                event.fail(UnknownServerError(repr(error)))
            await self._resign_and_pause()
        except Exception as error:
            if isinstance(event, RequestEvent):
                event.fail(UnknownServerError(repr(error)))
            raise

    async def _handle(self, event: Event) -> None:
        match event:
            case Startup() | ControllerChange() | Reelect():
                await self._reelect()
            case Expire():
                self._stop_active()
                self.active_controller_id = NO_CONTROLLER
            case RegisterBrokerAndReelect():
                await self._register_again()
            case _ if self._active is None:
                self._preempt(event)
            case AutoPreferredReplicaLeaderElection():
                try:
                    await self._active.handle(event)
                finally:
                    self._schedule_rebalance(self._settings.leader_imbalance_check_interval_seconds * 1000)
            case _:
                await self._active.handle(event)

    async def _register_again(self) -> None:
        session_id = self._coordination.session_id
        try:
            await self._register()
        except SessionExpiredError:
            raise
        except Exception:
            logger.exception(
                "broker %d cannot register; the next attempt is in %d ms", self.broker_id, _REGISTER_AGAIN_MS
            )
            self._timer.schedule(_REGISTER_AGAIN_MS, lambda: self._register_later(session_id))
        else:
            await self._reelect()

    def _register_later(self, session_id: int) -> None:
        """Does nothing if the next session has started, because a new session puts its own event into the queue."""
        if self._is_started and self._session_id == session_id:
            self._queue.put(RegisterBrokerAndReelect())

    def _preempt(self, event: Event) -> None:
        if isinstance(event, RequestEvent):
            event.fail(self._not_controller())

    def _session_changed(self, state: SessionState) -> None:
        session_id = self._coordination.session_id
        if state is SessionState.LOST:
            self._session_id = _NO_SESSION
            self._queue.clear_and_put(Expire())
        elif state is SessionState.CONNECTED and session_id != self._session_id:
            self._session_id = session_id
            self._queue.put(RegisterBrokerAndReelect())

    def _controller_changed(self, event: WatchEvent) -> None:
        self._queue.put(Reelect() if event.type is EventType.DELETED else ControllerChange())

    # The controller election

    async def _reelect(self) -> None:
        """Reads which broker is the controller, and takes part in the election if there is no controller."""
        while True:
            current = await controller_election.read_controller(self._coordination, self._controller_changed)
            self.active_controller_id = NO_CONTROLLER if current is None else current.broker_id
            if current is not None and current.is_ours and self._active is not None:
                return
            self._stop_active()
            if current is None:
                if self._is_pausing:
                    return
                epoch = await controller_election.run_for_controller(
                    self._coordination, self.broker_id, self._clock.wall_ms()
                )
                if epoch is not None:
                    await self._become_active(epoch)
                    return
            elif current.is_ours:
                # /controller_epoch was changed by hand. The next election creates a new epoch.
                await controller_election.resign(self._coordination)
            else:
                return

    async def _become_active(self, epoch: controller_election.ControllerEpoch) -> None:
        logger.info("broker %d is the controller in epoch %d", self.broker_id, epoch.epoch)
        active = ActiveController(
            self.broker_id, epoch, self._coordination, self._channel, self._settings, self._queue.put
        )
        try:
            await active.load()
            self._active = active
            self.active_controller_id = self.broker_id
            await active.start()
        except (ControllerMoved, StaleControllerEpoch, SessionExpiredError):
            raise
        except Exception:
            logger.exception("broker %d failed to start as controller, so it resigns", self.broker_id)
            await self._resign_and_pause()
            return
        self._schedule_rebalance(_FIRST_REBALANCE_MS)

    async def _resign_and_pause(self) -> None:
        """Resigns after an error, so that another broker can be elected. After a pause this broker is a candidate
        again.
        """

        def end_pause() -> None:
            self._is_pausing = False
            self._queue.put(Reelect())

        self._stop_active()
        self._is_pausing = True
        self._timer.schedule(_ELECTION_PAUSE_MS, end_pause)
        try:
            await controller_election.resign(self._coordination)
        except CoordinationError as error:  # the next election deletes /controller first
            logger.warning("broker %d cannot delete /controller now: %r", self.broker_id, error)

    def _stop_active(self) -> None:
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None
        if self._active is not None:
            logger.info("broker %d resigns as controller of epoch %d", self.broker_id, self._active.epoch)
            self.metrics.past_unclean_elections += self._active.context.unclean_elections
            self._active = None
            self._channel.close()

    def _schedule_rebalance(self, delay_ms: int) -> None:
        if self._settings.auto_leader_rebalance_enable and self._active is not None:
            self._rebalance = self._timer.schedule(
                delay_ms, lambda: self._queue.put(AutoPreferredReplicaLeaderElection())
            )
