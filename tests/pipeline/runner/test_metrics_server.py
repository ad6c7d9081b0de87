"""The metrics of a runner, as Prometheus reads them."""

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.pipeline.runner.metrics_server import MetricsServer
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.version.metrics import FAMILIES, PipelineMetrics


@pytest.fixture
def scraped():
    metrics = PipelineMetrics()
    counts = metrics.of("pages", 2)
    counts.state, counts.serves, counts.records_behind, counts.records_per_s = "serving", True, 42, 7.5
    counts.age_seconds = 0.5
    metrics.micro_batch("pages", 2, seconds=0.5, events=100, dead_letters=3, dropped_late=1)
    metrics.micro_batch("pages", 2, seconds=0.25, events=50)
    metrics.batch("pages", 2, seconds=8.0)
    metrics.of("users", 1)
    server = MetricsServer(metrics, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        server.close()
    return {
        (sample.name, sample.labels.get("view")): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("headrace_view_state", 1),
        ("headrace_view_serving", 1),
        ("headrace_view_records_behind", 42),
        ("headrace_view_records_per_second", 7.5),
        ("headrace_view_age_seconds", 0.5),
        ("headrace_view_events_total", 150),
        ("headrace_view_dead_letters_total", 3),
        ("headrace_view_dropped_late_total", 1),
        ("headrace_view_micro_batches_total", 2),
        ("headrace_view_micro_batch_seconds_total", 0.75),
        ("headrace_view_last_micro_batch_seconds", 0.25),
        ("headrace_view_batches_total", 1),
        ("headrace_view_batch_seconds_total", 8),
        ("headrace_view_last_batch_seconds", 8),
        ("headrace_view_failures_total", 0),
    ],
)
def test_every_family_is_served(scraped, name, value):
    sample = scraped[name, "pages"]
    assert (sample.value, sample.labels["version"]) == (value, "2")


def test_all_families_are_tested_above(scraped):
    served = {name for name, view in scraped if view == "pages"}
    assert served == {family.name for family in FAMILIES}


def test_the_state_is_a_label(scraped):
    assert scraped["headrace_view_state", "pages"].labels["state"] == "serving"
    assert ("headrace_view_state", "users") not in scraped
    assert ("headrace_view_records_behind", "users") not in scraped


def test_an_address_that_is_taken_is_told():
    server = MetricsServer(PipelineMetrics(), "127.0.0.1", 0)
    try:
        with pytest.raises(ServingError, match=r"cannot serve metrics on 127\.0\.0\.1"):
            MetricsServer(PipelineMetrics(), "127.0.0.1", server.port)
    finally:
        server.close()
