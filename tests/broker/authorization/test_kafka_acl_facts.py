"""Compares Headrace with Apache Kafka, request by request and principal by principal, by recorded answers.

``interop/acls`` has the requests and the principals; ``kafka_acl_facts.json`` has what Apache Kafka 4.3 answered.
``headrace_acl_differences.json`` has the answers of Headrace that differ, with the reasons.
"""

import json
from pathlib import Path

import pytest
from acls.brokers import headrace
from acls.matrix import DIFFERENCES, ROWS, cells_of, observe, read_facts, with_accepted

from headrace.broker import handlers
from headrace.protocol.api import CONTROL_APIS, Api

FACTS = Path(__file__).with_name("kafka_acl_facts.json")

pytestmark = pytest.mark.xdist_group("acl-matrix")


@pytest.fixture(scope="module")
def expected():
    return read_facts(FACTS)


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    cells = cells_of(ROWS)
    with headrace(tmp_path_factory.mktemp("acl-matrix"), cells) as addresses:
        return observe(addresses, cells)


@pytest.mark.parametrize("row", [row.name for row in ROWS])
@pytest.mark.timeout(240)
def test_headrace_answers_as_apache_kafka(row, expected, observed):
    assert observed[row] == with_accepted(expected)[row]


def test_every_difference_has_a_reason_and_is_one(expected):
    for row, accepted in json.loads(DIFFERENCES.read_text()).items():
        assert accepted["reason"].endswith("."), row
        for column, answer in accepted["answers"].items():
            assert answer != expected[row][column], f"{row}, {column}"


def test_every_row_was_recorded(expected):
    assert {row.name: {column.name for column in row.all_columns} for row in ROWS} == {
        row: set(columns) for row, columns in expected.items()
    }


def test_every_api_that_a_client_may_use_has_a_row():
    """Keys 4 to 7 are requests of the controller, which Apache Kafka 4.3 does not have."""
    files = Path(handlers.__file__).parent.glob("[a-z]*.py")
    assert {Api[file.stem.upper()] for file in files} - CONTROL_APIS == {row.api for row in ROWS}
