"""Compares Headrace with Apache Kafka, request by request, by recorded answers: telemetry, quotas, changed settings.

``interop/limits`` has the requests; ``kafka_limit_facts.json`` has what Apache Kafka 4.3 answered.
``headrace_limit_differences.json`` has the answers of Headrace that differ, with the reasons.
"""

import json
from pathlib import Path

import pytest
from limits.answers import DIFFERENCES, REQUEST_SEQUENCES, observe_request_sequence, with_accepted
from limits.brokers import headrace

FACTS = Path(__file__).with_name("kafka_limit_facts.json")
GUIDE = Path(__file__).parents[3] / "docs" / "compatibility.md"
EXPECTED = json.loads(FACTS.read_text())

pytestmark = pytest.mark.xdist_group("limit-facts")


@pytest.fixture(scope="module")
def broker():
    with headrace() as address:
        yield address


@pytest.mark.parametrize("sequence", REQUEST_SEQUENCES)
@pytest.mark.timeout(120)
def test_headrace_answers_as_apache_kafka(sequence, broker):
    assert observe_request_sequence(sequence, broker) == with_accepted(EXPECTED)[sequence]


def test_every_difference_has_a_reason_and_is_one():
    for sequence, accepted in json.loads(DIFFERENCES.read_text()).items():
        for step, each in accepted.items():
            assert each["reason"].endswith("."), f"{sequence}, {step}"
            assert each["answer"] != EXPECTED[sequence][step], f"{sequence}, {step}"


def test_the_numbers_of_answers_are_those_of_the_guide():
    differing = sum(map(len, json.loads(DIFFERENCES.read_text()).values()))
    text = " ".join(GUIDE.read_text(encoding="utf-8").split())
    assert f"Of {sum(map(len, EXPECTED.values()))} answers {differing} differ" in text


def test_every_request_sequence_was_recorded():
    assert list(EXPECTED) == list(REQUEST_SEQUENCES)
