"""The effects that decisions yield, as values.

A decision is a generator of :data:`Steps`. The generator yields an effect, receives the answer, and returns its result.
The generator itself does no I/O. So the same code runs with a real ZooKeeper, in the simulator, and in tests that
answer from a dict.

===========================  =======================================================================================
:class:`WriteStates`         Write ``state`` znodes, each only at the given version. Create new znodes with their
                             parents. Answer: the new version of each partition's znode, or None where the znode was
                             not as expected
:class:`ReadStates`          Read ``state`` znodes again. Answer: the :class:`Leadership` of each partition, or None
                             where there is no znode
:class:`WriteTopic`          Write a topic's assignment to its znode. No answer
:class:`DeleteTopic`         Delete a topic's znodes, its configs, and its znode in ``/admin/delete_topics``. No answer
:class:`ClearReassignments`  Remove partitions from ``/admin/reassign_partitions``. No answer
:class:`Send`                Send requests to brokers, in order. No answer; the responses of the brokers are events
===========================  =======================================================================================

The runner of the effects makes every write depend on the version of ``/controller_epoch``. When that version has
changed, another broker is the controller. Then the runner closes the generator, and the remaining steps are not done.
"""

from collections.abc import Generator
from typing import NamedTuple, TypeAlias, TypeVar

from headrace.controller.decisions.broker_requests import Request
from headrace.controller.decisions.leader_elections import Leadership
from headrace.coordination.znodes import TopicAssignment, TopicPartition


class StateWrite(NamedTuple):
    partition: TopicPartition
    #: The new content, and the version that the znode must still have.
    leadership: Leadership
    #: The znode must not exist.
    is_new: bool


class WriteStates(NamedTuple):
    writes: tuple[StateWrite, ...]


class ReadStates(NamedTuple):
    partitions: tuple[TopicPartition, ...]


class WriteTopic(NamedTuple):
    topic: str
    assignment: TopicAssignment


class DeleteTopic(NamedTuple):
    topic: str


class ClearReassignments(NamedTuple):
    partitions: tuple[TopicPartition, ...]


class Send(NamedTuple):
    requests: tuple[Request, ...]


Effect: TypeAlias = WriteStates | ReadStates | WriteTopic | DeleteTopic | ClearReassignments | Send
T = TypeVar("T")
Steps: TypeAlias = Generator[Effect, object, T]
