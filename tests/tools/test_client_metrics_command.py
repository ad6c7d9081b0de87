"""``client-metrics``, and ``configs --entity-type client-metrics``."""

import pytest


@pytest.fixture
def subscription(tool, request):
    name = request.node.name
    arguments = ("--metrics", "org.a.,org.b.", "--interval", 5_000, "--match", "client_id=x, client_software_name=y")
    done = tool("client-metrics", "--alter", "--name", name, *arguments)
    assert (done.code, done.lines) == (0, [f"Altered client metrics config for {name}."])
    yield name
    assert tool("client-metrics", "--delete", "--name", name).code == 0


def test_a_subscription_in_the_words_of_kafkas_tool(tool, subscription):
    assert tool("client-metrics", "--describe", "--name", subscription).lines == [
        f"Client metrics configs for {subscription} are:",
        "  interval.ms=5000",
        "  match=client_id=x,client_software_name=y",
        "  metrics=org.a.,org.b.",
    ]
    assert tool("client-metrics", "--list").lines == [subscription]
    assert tool("client-metrics", "--list", "--json").value == [subscription]
    assert tool("client-metrics", "--describe", "--json").value == [
        {
            "name": subscription,
            "configs": {
                "interval.ms": "5000",
                "match": "client_id=x,client_software_name=y",
                "metrics": "org.a.,org.b.",
            },
        }
    ]


def test_an_empty_value_restores_the_default(tool, subscription):
    assert tool("client-metrics", "--alter", "--name", subscription, "--interval", "", "--match", "").code == 0
    assert tool("client-metrics", "--describe", "--name", subscription).lines[1:] == [
        "  interval.ms=300000",
        "  match=",
        "  metrics=org.a.,org.b.",
    ]


def test_a_generated_name(tool):
    name = tool("client-metrics", "--alter", "--generate-name", "--metrics", "*", "--json").value["name"]
    assert len(name) == 22
    assert tool("client-metrics", "--list").lines == [name]
    done = tool("client-metrics", "--delete", "--name", name)
    assert (done.code, done.lines) == (0, [f"Deleted client metrics config for {name}."])
    assert tool("client-metrics", "--list").lines == []


def test_a_subscription_that_does_not_exist(tool):
    done = tool("client-metrics", "--describe", "--name", "nobody")
    line = "The client metric resource nobody doesn't exist and doesn't have dynamic config."
    assert (done.code, done.lines) == (0, [line])
    assert tool("client-metrics", "--delete", "--name", "nobody", "--json").value == {
        "name": "nobody",
        "deleted": False,
    }


@pytest.mark.parametrize(
    ("flag", "value", "reason"),
    [
        ("--interval", "99", "must be from 100"),
        ("--interval", "soon", "must be a whole number"),
        ("--match", "colour=red", "Illegal client matching pattern"),
        ("--match", "client_id=[", "RE2"),
    ],
)
def test_the_broker_refuses_wrong_values(tool, flag, value, reason):
    failed = tool("client-metrics", "--alter", "--name", "bad", flag, value)
    assert failed.code == 1
    assert reason in failed.err
    assert tool("client-metrics", "--list").lines == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--list", "--describe"],
        ["--list", "--name", "a"],
        ["--alter", "--metrics", "*"],
        ["--alter", "--name", "a", "--generate-name", "--metrics", "*"],
        ["--alter", "--name", "a"],
        ["--delete"],
        ["--delete", "--name", "a", "--metrics", "*"],
        ["--describe", "--generate-name"],
    ],
)
def test_wrong_use(tool, arguments):
    failed = tool("client-metrics", *arguments)
    assert (failed.code, failed.out) == (2, "")


def test_configs_shows_and_changes_subscriptions(tool, subscription):
    of_type = ("--entity-type", "client-metrics")
    changed = tool("configs", "--alter", *of_type, "--entity-name", subscription, "--add-config", "interval.ms=700")
    assert (changed.code, changed.lines) == (0, [f"Completed updating config for client-metric {subscription}."])
    described = tool("configs", "--describe", *of_type).lines
    assert described[:2] == [
        f"Dynamic configs for client-metric {subscription} are:",
        "  interval.ms=700 sensitive=false synonyms={DYNAMIC_CLIENT_METRICS_CONFIG:interval.ms=700}",
    ]
    assert described == tool("configs", "--describe", "--client-metrics", subscription).lines
    deleted = tool("configs", "--alter", "--client-metrics", subscription, "--delete-config", "interval.ms")
    assert (deleted.code, deleted.err) == (0, "")


def test_the_admin_client_lists_resources(admin, subscription):
    admin.create_topic(f"topic-{subscription}")
    everything = admin.list_config_resources()
    assert ("client_metrics", subscription) in everything
    assert ("topic", f"topic-{subscription}") in everything
    assert {("broker", "0"), ("broker_logger", "0")} <= set(everything)
    assert admin.list_config_resources(["client_metrics"]) == [("client_metrics", subscription)]
    assert admin.list_config_resources(["broker"]) == [("broker", "0")]
