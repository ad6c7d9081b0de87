"""The next request of a client, and its time: the states of KIP-714, on a manual clock."""

from datetime import timedelta
from math import inf
from types import SimpleNamespace
from uuid import UUID

import pytest

from headrace.client.telemetry.reporter import NEXT, NO_ID, TelemetryReporter, TelemetryState
from headrace.client.telemetry.subscription import DEFAULT_PUSH_INTERVAL_MS, Subscription
from headrace.protocol.kio import ErrorCode
from headrace.protocol.records import Codec

ID = UUID("12345678-1234-1234-1234-123456789abc")
S = TelemetryState


def answer(*metrics: str, code=ErrorCode.none, interval_ms=1000, instance_id=ID, codecs=(4, 3), is_delta=True):
    return SimpleNamespace(
        error_code=code,
        client_instance_id=instance_id,
        subscription_id=7,
        accepted_compression_types=codecs,
        push_interval=timedelta(milliseconds=interval_ms),
        delta_temporality=is_delta,
        requested_metrics=metrics,
    )


def subscribed(*metrics: str, now_ms: float = 0, **options: object) -> TelemetryReporter:
    reporter = TelemetryReporter(jitter=lambda low, high: low)
    assert reporter.begin_request() is S.SUBSCRIPTION_IN_PROGRESS
    reporter.subscribed(answer(*metrics, **options), now_ms)
    return reporter


def test_a_new_client_asks_at_once_and_has_no_id():
    reporter = TelemetryReporter()
    assert reporter.wait_ms(0) == 0
    assert reporter.client_instance_id == NO_ID
    assert reporter.begin_request() is S.SUBSCRIPTION_IN_PROGRESS


def test_the_first_push_comes_after_a_random_part_of_the_interval_and_the_next_after_the_interval():
    reporter = TelemetryReporter()
    reporter.begin_request()
    reporter.subscribed(answer("*"), 0)
    assert reporter.state is S.PUSH_NEEDED
    assert 500 <= reporter.wait_ms(0) <= 1500
    assert reporter.begin_request() is S.PUSH_IN_PROGRESS
    reporter.pushed(ErrorCode.none, 1_000)
    assert (reporter.state, reporter.wait_ms(1_000)) == (S.PUSH_NEEDED, 1000)
    assert reporter.client_instance_id == ID


def test_a_client_whose_metrics_nobody_wants_asks_again_after_the_interval_with_its_id():
    reporter = subscribed(interval_ms=2000)
    assert (reporter.state, reporter.wait_ms(500)) == (S.SUBSCRIPTION_NEEDED, 1500)
    assert reporter.client_instance_id == ID


@pytest.mark.parametrize("code", [ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type])
def test_a_changed_subscription_is_asked_for_at_once(code):
    reporter = subscribed("*")
    reporter.begin_request()
    reporter.pushed(code, 700)
    assert (reporter.state, reporter.wait_ms(700)) == (S.SUBSCRIPTION_NEEDED, 0)


@pytest.mark.parametrize("code", [ErrorCode.telemetry_too_large, ErrorCode.throttling_quota_exceeded])
def test_a_push_that_is_too_large_or_too_early_waits_for_the_interval(code):
    reporter = subscribed("*")
    reporter.begin_request()
    reporter.pushed(code, 700)
    assert (reporter.state, reporter.wait_ms(700)) == (S.SUBSCRIPTION_NEEDED, 1000)


def test_a_refused_first_request_waits_for_the_default_interval():
    reporter = subscribed(code=ErrorCode.throttling_quota_exceeded)
    assert (reporter.state, reporter.wait_ms(0)) == (S.SUBSCRIPTION_NEEDED, DEFAULT_PUSH_INTERVAL_MS)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.invalid_request,
        ErrorCode.invalid_record,
        ErrorCode.unsupported_version,
        ErrorCode.unknown_server_error,
    ],
)
def test_other_errors_end_the_telemetry(code):
    for reporter in (subscribed("*"), subscribed("*", code=code)):
        if reporter.state is S.PUSH_NEEDED:
            reporter.begin_request()
            reporter.pushed(code, 0)
        assert (reporter.state, reporter.wait_ms(0)) == (S.TERMINATED, inf)


def test_a_broker_that_gives_no_id_gets_no_metrics():
    assert subscribed("*", instance_id=NO_ID).state is S.TERMINATED
    assert subscribed("*", instance_id=None).state is S.TERMINATED


def test_after_a_lost_connection_another_broker_is_asked():
    reporter = subscribed("*")
    reporter.begin_request()
    reporter.failed(0)
    assert (reporter.state, reporter.wait_ms(0)) == (S.SUBSCRIPTION_NEEDED, 1000)
    reporter.begin_request()
    reporter.failed(0, is_unsupported=True)
    assert reporter.wait_ms(0) == DEFAULT_PUSH_INTERVAL_MS


def test_a_client_that_is_closed_pushes_once_more_if_a_broker_wants_metrics():
    for progress in (lambda _: None, lambda reporter: reporter.begin_request()):
        reporter = subscribed("*")
        progress(reporter)
        assert reporter.begin_termination()
        assert reporter.begin_request() is S.TERMINATING_PUSH_IN_PROGRESS
        reporter.end()
        assert not reporter.begin_termination()
    for reporter in (TelemetryReporter(), subscribed(), subscribed("*", code=ErrorCode.invalid_request)):
        assert not reporter.begin_termination()
        reporter.end()
        reporter.end()
        assert reporter.state is S.TERMINATED


def test_every_state_may_end_and_the_end_is_the_end():
    assert all(S.TERMINATED in following for state, following in NEXT.items() if state is not S.TERMINATED)
    assert NEXT[S.TERMINATED] == frozenset()


# -- subscriptions


def test_an_interval_that_makes_no_sense_is_the_default():
    assert Subscription.of(answer("*", interval_ms=0)).push_interval_ms == DEFAULT_PUSH_INTERVAL_MS


def test_the_first_codec_that_is_known_is_used():
    assert Subscription.of(answer(codecs=(9, 2, 4))).codec is Codec.snappy
    assert Subscription.of(answer(codecs=())).codec is Codec.none


def test_metrics_are_selected_by_the_beginnings_of_their_names():
    some = Subscription.of(answer("org.apache.kafka.producer.node.", "org.apache.kafka.consumer."))
    assert some.selects("org.apache.kafka.producer.node.request.latency.avg")
    assert some.selects("org.apache.kafka.consumer.poll.idle.ratio.avg")
    assert not some.selects("org.apache.kafka.producer.connection.creation.total")
    assert Subscription.of(answer("*")).selects("anything")
    assert not Subscription.of(answer()).selects("org.apache.kafka.producer.connection.creation.total")
