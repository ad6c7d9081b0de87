"""Compares Headrace with Apache Kafka, request by request, by recorded answers: telemetry, quotas, changed settings.

``interop/limits`` has the requests; ``kafka_limit_facts.json`` has what Apache Kafka 4.3 answered.
``headrace_limit_differences.json`` has the answers of Headrace that differ, with the reasons.
"""

import json
from pathlib import Path

import pytest
from limits.answers import DIFFERENCES, SCENES, observe_scene, with_accepted
from limits.brokers import headrace

FACTS = Path(__file__).with_name("kafka_limit_facts.json")
GUIDE = Path(__file__).parents[3] / "docs" / "compatibility.md"
EXPECTED = json.loads(FACTS.read_text())

pytestmark = pytest.mark.xdist_group("limit-facts")


@pytest.fixture(scope="module")
def broker():
    with headrace() as address:
        yield address


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.timeout(120)
def test_headrace_answers_as_apache_kafka(scene, broker):
    assert observe_scene(scene, broker) == with_accepted(EXPECTED)[scene]


def test_every_difference_has_a_reason_and_is_one():
    for scene, accepted in json.loads(DIFFERENCES.read_text()).items():
        for step, each in accepted.items():
            assert each["reason"].endswith("."), f"{scene}, {step}"
            assert each["answer"] != EXPECTED[scene][step], f"{scene}, {step}"


def test_the_numbers_of_answers_are_those_of_the_guide():
    differing = sum(map(len, json.loads(DIFFERENCES.read_text()).values()))
    text = " ".join(GUIDE.read_text(encoding="utf-8").split())
    assert f"Of {sum(map(len, EXPECTED.values()))} answers {differing} differ" in text


def test_every_scene_was_recorded():
    assert list(EXPECTED) == list(SCENES)
