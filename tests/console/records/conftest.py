"""Gives the tests of records a topic that they fill, and its addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from headrace import Admin, Broker, Producer

_NUMBERS = count()


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture(scope="module")
def producer(broker: Broker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap_servers, max_request_size=20_000_000) as producer:
        yield producer


@pytest.fixture
def new_topic(admin: Admin) -> Callable[..., str]:
    """Creates a topic of its own for a test: ``new_topic(num_partitions=2)``."""

    def create(num_partitions: int = 1, **configs: object) -> str:
        name = f"records-{next(_NUMBERS)}"
        admin.create_topic(name, num_partitions=num_partitions, configs=configs or None)
        return name

    return create
