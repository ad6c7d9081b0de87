"""The metrics that subscriptions ask a client for."""

from headrace.broker.telemetry.subscriptions import Demand, Subscriptions

CLIENT = {
    "client_instance_id": "id",
    "client_id": "billing-7",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.3.0",
    "client_source_address": "10.0.0.7",
    "client_source_port": "5000",
}


def demand(*subscriptions, client=CLIENT):
    made = Subscriptions()
    for number, configs in enumerate(subscriptions):
        made.put(f"s{number}", configs)
    return made.demand_on(client)


def test_without_a_subscription_nothing_is_asked_for():
    assert demand() == Demand((), 300_000)
    assert not demand().asks_for("anything")


def test_subscriptions_are_joined_at_the_shortest_interval():
    joined = demand(
        {"metrics": "b,a", "interval.ms": "2000"}, {"metrics": "b,c", "interval.ms": "500"}, {"metrics": "d"}
    )
    assert joined == Demand(("a", "b", "c", "d"), 500)
    assert joined.asks_for("c.1")
    assert not joined.asks_for("e")


def test_all_metrics_include_the_others():
    joined = demand({"metrics": "a"}, {"metrics": "x,*"})
    assert joined.metrics == ("*",)
    assert joined.asks_for("anything")


def test_all_expressions_of_a_subscription_must_match_the_whole_attribute():
    match = {"metrics": "a", "match": "client_id=billing-.*,client_software_version=4\\..*"}
    assert demand(match).metrics == ("a",)
    assert demand(match, client={**CLIENT, "client_software_version": "3.9.0"}).metrics == ()
    assert demand({"metrics": "a", "match": "client_id=billing"}).metrics == ()
    assert demand({"metrics": "a", "match": "client_id=.*"}, client={**CLIENT, "client_id": None}).metrics == ()


def test_a_subscription_is_deleted_with_its_last_setting():
    made = Subscriptions()
    made.put("a%2Fb", {"metrics": "x"})
    assert (list(made), made.version) == (["a/b"], 1)
    made.put("a%2Fb", {"metrics": "x"})
    assert made.version == 1  # a repeated notification changes nothing
    made.put("a%2Fb", {})
    assert (list(made), made.version) == ([], 2)


def test_subscriptions_without_a_znode_are_forgotten():
    made = Subscriptions()
    made.put("a%2Fb", {"metrics": "x"})
    made.put("c", {"metrics": "y"})
    made.keep_only(["c"])
    assert list(made) == ["c"]


def test_settings_that_another_program_wrote_wrongly_are_not_in_force(caplog):
    assert demand({"metrics": "a", "match": "nonsense"}) == Demand((), 300_000)
    assert "is not in force" in caplog.text
