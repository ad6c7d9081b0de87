"""Helpers for tests against Headrace: brokers in this process and in processes of their own, tests of views.

``docs/testing.md`` is the guide. The pytest fixtures are in ``pytest_plugin.py``; pytest finds them by the package's
entry point. Names are loaded when they are first used: every pytest run imports this package, so it must be cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing.broker_process import BrokerProcess, StartFailed
    from headrace.testing.broker_time import pass_time
    from headrace.testing.clock import ManualClock
    from headrace.testing.cluster_process import ClusterProcess
    from headrace.testing.faulty_disk import FaultyDisk
    from headrace.testing.raw_client import ClosedByPeer, RawClient
    from headrace.testing.topics import TopicFactory
    from headrace.testing.view_harness import ViewTests, view_tests

__all__ = [
    "BrokerProcess",
    "ClosedByPeer",
    "ClusterProcess",
    "FaultyDisk",
    "ManualClock",
    "RawClient",
    "StartFailed",
    "TopicFactory",
    "ViewTests",
    "pass_time",
    "view_tests",
]

_MODULES = {
    "BrokerProcess": "headrace.testing.broker_process",
    "ClosedByPeer": "headrace.testing.raw_client",
    "ClusterProcess": "headrace.testing.cluster_process",
    "FaultyDisk": "headrace.testing.faulty_disk",
    "ManualClock": "headrace.testing.clock",
    "RawClient": "headrace.testing.raw_client",
    "StartFailed": "headrace.testing.broker_process",
    "TopicFactory": "headrace.testing.topics",
    "ViewTests": "headrace.testing.view_harness",
    "pass_time": "headrace.testing.broker_time",
    "view_tests": "headrace.testing.view_harness",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
