"""Pytest fixtures that give a test a Kafka broker, and run tests of views.

Installing Headrace is enough: pytest finds the fixtures by an entry point.

=========================  ========  ==================================================================
fixture                    scope     value
=========================  ========  ==================================================================
``headrace_broker``        function  :class:`headrace.Broker`: a broker of its own for one test
``headrace_session_broker``  session   :class:`headrace.Broker`: one broker for all tests of the run
``headrace_prefix``        function  a string that begins the test's names on the session broker
``headrace_topic``         function  a function that creates topics on the session broker
``headrace_cluster``       function  :class:`headrace.testing.ClusterProcess`: three brokers as processes
``headrace_views``         session   :class:`headrace.testing.ViewTests`: runs tests of views with Spark
=========================  ========  ==================================================================

The ini option ``headrace_settings`` holds settings for all brokers; the marker ``headrace`` those for one test.

Every pytest run imports this module, so it imports nothing of Headrace until a test asks for a broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace import Broker
    from headrace.testing.cluster_process import ClusterProcess
    from headrace.testing.topics import TopicFactory
    from headrace.testing.view_harness import ViewTests

_INI_OPTION = "headrace_settings"
_MARKER = "headrace"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9._-]+")
#: Kafka allows 249 characters; the rest is for the user's own part of a name.
_MAX_TEST_NAME = 80
#: Short, so that a test waits little for a new leader after a kill; long enough for a busy machine.
_CLUSTER_SESSION_TIMEOUT_MS = 3_000
_prefix_numbers = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        _INI_OPTION,
        "settings of the brokers that Headrace's fixtures start, one KEY=VALUE per line, by Kafka's names",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(**settings): broker settings for this test's headrace_broker or headrace_cluster, by Kafka's "
        'names: **{"num.partitions": 3} or num_partitions=3',
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a test whose marker would be ignored: the session broker's settings are the same for all tests."""
    if item.get_closest_marker(_MARKER) is None:
        return
    fixtures: list[str] = getattr(item, "fixturenames", [])
    if "headrace_session_broker" in fixtures and not {"headrace_broker", "headrace_cluster"} & set(fixtures):
        raise pytest.UsageError(
            f"{item.nodeid}: the marker `{_MARKER}` cannot change the settings of headrace_session_broker, which is "
            f"one broker for all tests; use headrace_broker instead, or the ini option {_INI_OPTION}"
        )


@pytest.fixture
def headrace_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Starts a broker for this test alone, on a free port; its data is deleted after the test."""
    from headrace import Broker

    with Broker(config=_settings(request.config, request.node)) as broker:
        yield broker


@pytest.fixture(scope="session")
def headrace_session_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Starts one broker for all tests of this run. With pytest-xdist each worker has one."""
    from headrace import Broker

    with Broker(config=_settings(request.config, None)) as broker:
        yield broker


@pytest.fixture(scope="session")
def _headrace_topic_factory(headrace_session_broker: Broker) -> Iterator[TopicFactory]:
    from headrace.testing.topics import TopicFactory

    with TopicFactory(headrace_session_broker.bootstrap_servers) as topics:
        yield topics


@pytest.fixture
def headrace_prefix(request: pytest.FixtureRequest, _headrace_topic_factory: TopicFactory) -> Iterator[str]:
    """Begins the names of this test's topics, groups and transactional ids on the session broker.

    No other test has the same prefix. Topics whose names begin with the prefix are deleted after the test.
    """
    test_name = _NOT_IN_NAMES.sub("-", request.node.name)[:_MAX_TEST_NAME].strip("-")
    prefix = f"{test_name}-{next(_prefix_numbers)}-"
    yield prefix
    _headrace_topic_factory.delete_all(prefix)


@pytest.fixture
def headrace_topic(headrace_prefix: str, _headrace_topic_factory: TopicFactory) -> Callable[..., str]:
    """A function ``(name="topic", partitions=1, **settings)`` that creates a topic on the session broker.

    It returns the full name, which begins with ``headrace_prefix``. Settings are the topic's, by Kafka's names with
    underscores instead of dots: ``cleanup_policy="compact"``.
    """

    def create(name: str = "topic", partitions: int = 1, **settings: object) -> str:
        return _headrace_topic_factory.create(headrace_prefix + name, partitions, _with_dots(settings))

    return create


@pytest.fixture
def headrace_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterProcess]:
    """Starts three brokers and Headrace's ZooKeeper, each in a process of its own, for this test alone."""
    from headrace.testing.cluster_process import ClusterProcess
    from headrace.testing.topics import setting_text

    settings = _settings(request.config, request.node)
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={setting_text(value)}")]
    folder = tmp_path / "headrace-cluster"
    with ClusterProcess(folder, *options, session_timeout_ms=_CLUSTER_SESSION_TIMEOUT_MS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def headrace_views() -> Iterator[ViewTests]:
    """Runs tests of views. Spark starts with the first test, and serves all tests of the run."""
    from headrace.testing.view_harness import ViewTests

    views = ViewTests()
    yield views
    views.close()


def _settings(config: pytest.Config, test: pytest.Item | None) -> dict[str, object]:
    """The settings of the ini option; a test's markers replace them, and the marker nearest to the test wins."""
    settings: dict[str, object] = {}
    for line in config.getini(_INI_OPTION):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{_INI_OPTION}: {line!r} is not KEY=VALUE; write for example num.partitions=3")
        settings[name.strip()] = value.strip()
    if test is not None:
        for marker in reversed(list(test.iter_markers(_MARKER))):
            if marker.args:
                raise pytest.UsageError(
                    f"{test.nodeid}: the marker `{_MARKER}` takes settings by name, not {marker.args[0]!r}; "
                    f"write @pytest.mark.{_MARKER}(num_partitions=3)"
                )
            settings.update(_with_dots(marker.kwargs))
    return settings


def _with_dots(settings: Mapping[str, object]) -> dict[str, object]:
    """``num_partitions`` is ``num.partitions``: no setting of Kafka's has an underscore."""
    return {name.replace("_", "."): value for name, value in settings.items()}
