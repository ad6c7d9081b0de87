"""A member of a cluster: the values and events that it passes on to its parts."""

from types import SimpleNamespace

from cluster_member_harness import Recorder

from headrace.broker.cluster.cluster_member import ClusterMember
from headrace.broker.metrics.role_metrics import LocalMetrics
from headrace.coordination.interface import ConnectionLostError


def member(*, is_open=True):
    made = ClusterMember(SimpleNamespace(on_topic_deleted=lambda name: made.calls.append(name)))
    made.calls, made.is_open = [], is_open
    made.replicas, made.controller, made.configs = Recorder(logs=Recorder()), Recorder(), Recorder()
    return made


def test_settings_of_a_topic_reach_the_replicas_and_the_controller():
    made = member()
    made._topic_configured("t", {"retention.ms": "5"})
    assert made.replicas.calls == [("topic_configured", "t", {"retention.ms": "5"})]
    assert made.controller.calls == [("unclean_election_changed", "t")]
    made._unclean_election_changed()
    assert made.controller.calls[1:] == [("unclean_election_changed",)]


def test_settings_that_are_read_before_the_parts_exist_reach_nothing():
    made = member(is_open=False)
    made._topic_configured("t", {"retention.ms": "5"})
    made._unclean_election_changed()
    assert made.replicas.calls == made.controller.calls == []
    assert isinstance(made.metrics(), LocalMetrics)


def test_a_deleted_topic_is_forgotten_by_all_parts():
    made = member()
    made._topic_deleted("t")
    assert made.configs.calls == made.replicas.logs.calls == [("topic_deleted", "t")]
    assert made.calls == ["t"]


async def test_addresses_are_registered_again_if_the_tree_is_away(monkeypatch, caplog):
    monkeypatch.setattr("headrace.broker.cluster.cluster_member._UPDATE_AGAIN_AFTER_S", 0)
    made = member()
    answers = iter([ConnectionLostError(), ConnectionLostError(), None])

    async def update():
        answer = next(answers)
        if answer is not None:
            raise answer

    made.registration = SimpleNamespace(update=update)
    await made.addresses_changed()
    assert next(answers, "all") == "all"
    assert caplog.text.count("cannot be registered now") == 2


async def test_addresses_of_a_member_that_is_not_open_are_not_registered():
    made = member(is_open=False)
    made.registration = Recorder()
    await made.addresses_changed()
    assert made.registration.calls == []
