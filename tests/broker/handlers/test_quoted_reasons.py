"""Texts of clients in the log: each stays inside its line."""

from __future__ import annotations

import logging

import pytest

from headrace import Broker
from headrace.client.errors import error_for
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing import RawClient

FORGED = "\n2026-01-01 00:00:00 INFO all is well"


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker, caplog):
    caplog.set_level(logging.DEBUG, "headrace")
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(Api.FIND_COORDINATOR, 1, key="g", key_type=0)
        caplog.clear()
        yield client


def lines_with(caplog, text):
    found = [line for line in caplog.messages if text in line]
    assert found
    assert all(line.isprintable() for line in found)
    return found


def test_the_reason_of_a_join(client, caplog):
    client.ask(
        Api.JOIN_GROUP, 9, group_id=f"g{FORGED}", session_timeout=10_000, rebalance_timeout=10_000, member_id="",
        group_instance_id=None, protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}],
        reason=f"why{FORGED}",
    )  # fmt: skip
    (line,) = lines_with(caplog, "joins group")
    assert r"why\n2026-01-01" in line


def test_the_reasons_of_thousands_that_leave_are_one_line(client, caplog):
    members = [
        {"member_id": f"m{number}{FORGED}", "group_instance_id": None, "reason": f"why{FORGED}"}
        for number in range(2_000)
    ]
    answer = client.ask(Api.LEAVE_GROUP, 5, group_id=f"g{FORGED}", members=members)
    assert len(answer.members) == 2_000
    (line,) = lines_with(caplog, "leaves group")
    assert line.startswith(r"member m0\n2026-01-01")
    assert "with 1999 others" in line


def test_a_refused_request_of_a_group(client, caplog):
    client.ask(
        Api.CONSUMER_GROUP_HEARTBEAT, 0, group_id=f"g{FORGED}", member_id=f"m{FORGED}", member_epoch=-7,
        instance_id=None, rack_id=None, rebalance_timeout=-1, subscribed_topic_names=None, server_assignor=None,
        topic_partitions=None,
    )  # fmt: skip
    lines_with(caplog, "INVALID_REQUEST")


def test_the_message_of_a_broker_stays_one_line_in_the_client():
    assert str(error_for(ErrorCode.invalid_config, f"no{FORGED}")).splitlines() == [
        r"no\n2026-01-01 00:00:00 INFO all is well (invalid_config)"
    ]
