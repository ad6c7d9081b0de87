"""Performs the effects that the decisions yield: writes to ZooKeeper, and sends requests to brokers."""

from __future__ import annotations

from typing import TypeVar

from headrace.controller.decisions.broker_requests import Channel
from headrace.controller.decisions.context import ControllerContext, LiveBroker
from headrace.controller.decisions.effects import (
    ClearReassignments,
    DeleteTopic,
    Effect,
    ReadStates,
    Send,
    Steps,
    WriteStates,
    WriteTopic,
)
from headrace.controller.fenced_writer import FencedWriter
from headrace.controller.partition_state_writer import PartitionStateWriter, read_states
from headrace.controller.topic_writer import TopicWriter

T = TypeVar("T")


class EffectRunner:
    """Performs effects in one controller epoch."""

    def __init__(self, writer: FencedWriter, channel: Channel, context: ControllerContext) -> None:
        self._coordination = writer.coordination
        self._states = PartitionStateWriter(writer, context)
        self._topics = TopicWriter(writer, context)
        self._channel = channel
        self._context = context
        self._channel_brokers: list[LiveBroker] | None = None

    async def run(self, steps: Steps[T]) -> T:
        """Performs the effects of the steps; returns the result of the steps.

        :raises ControllerMoved: if another broker is the controller now.
        """
        answer: object = None
        try:
            while True:
                try:
                    effect = steps.send(answer)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                answer = await self.perform(effect)
        finally:
            steps.close()
            self._update_channel()

    async def perform(self, effect: Effect) -> object:
        """Performs one effect; returns its answer."""
        match effect:
            case WriteStates(writes):
                return await self._states.write(writes)
            case ReadStates(partitions):
                return await read_states(self._coordination, partitions)
            case WriteTopic(topic, assignment):
                await self._topics.write(topic, assignment)
            case DeleteTopic(topic):
                await self._topics.delete(topic)
            case ClearReassignments(partitions):
                await self._topics.clear_reassignments(partitions)
            case Send(requests):
                self._update_channel()
                for request in requests:
                    self._channel.send(request)
        return None

    def _update_channel(self) -> None:
        """Gives the live brokers of the context to the channel, before the channel gets requests for them."""
        brokers = list(self._context.brokers)
        if brokers != self._channel_brokers:
            self._channel_brokers = brokers
            self._channel.set_brokers(brokers)
