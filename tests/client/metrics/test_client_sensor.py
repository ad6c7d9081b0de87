"""Sensors forget what is older than their samples, and never forget totals."""

from math import isnan

import pytest

from headrace.client.metrics.sensor import Sensor, Stat, Window, read_all

WINDOW = Window(num_samples=2, sample_ms=30_000)


def recorded(*events: tuple[float, float]) -> Sensor:
    """A sensor with values and their times in milliseconds."""
    sensor = Sensor(WINDOW)
    for value, now_ms in events:
        sensor.record(value, now_ms)
    return sensor


def value(sensor: Sensor, stat: Stat, now_ms: float) -> float:
    return stat.of(sensor.read(now_ms))


def test_a_sensor_without_events_has_totals_and_rates_of_0_and_no_average():
    sensor = recorded()
    for stat in (Stat.TOTAL, Stat.EVENTS, Stat.RATE, Stat.EVENT_RATE, Stat.EVENTS_PER_HOUR):
        assert value(sensor, stat, 0) == 0
    assert isnan(value(sensor, Stat.AVG, 0))
    assert isnan(value(sensor, Stat.MAX, 0))


def test_averages_and_maxima_are_those_of_the_last_two_samples():
    sensor = recorded((100, 0), (10, 31_000), (20, 40_000))
    assert value(sensor, Stat.MAX, 59_999) == 100
    assert value(sensor, Stat.AVG, 59_999) == pytest.approx(130 / 3)
    assert value(sensor, Stat.MAX, 60_000) == 20, "the sample that began at 0 is too old"
    assert value(sensor, Stat.AVG, 60_000) == 15
    assert isnan(value(sensor, Stat.AVG, 91_000))


def test_totals_are_those_of_the_whole_life():
    sensor = recorded(*((2, now_ms) for now_ms in range(0, 600_000, 10_000)))
    assert value(sensor, Stat.TOTAL, 10_000_000) == 120
    assert value(sensor, Stat.EVENTS, 10_000_000) == 60


def test_a_new_sensor_shows_no_rate_that_is_too_high():
    sensor = recorded((300, 0))
    assert value(sensor, Stat.RATE, 1) == pytest.approx(300 / 30.001), "one whole sample counts besides the new one"


def test_a_steady_rate_is_measured_exactly():
    sensor = recorded(*((5, now_ms) for now_ms in range(0, 120_000, 100)))
    assert value(sensor, Stat.RATE, 120_000) == pytest.approx(50, rel=0.01)
    assert value(sensor, Stat.EVENT_RATE, 120_000) == pytest.approx(10, rel=0.01)
    assert value(sensor, Stat.EVENTS_PER_HOUR, 120_000) == pytest.approx(36_000, rel=0.01)


def test_several_sensors_read_as_one():
    first, second = recorded((1, 0), (3, 0)), recorded((8, 10_000))
    reading = read_all([first, second], WINDOW, 20_000)
    assert (Stat.TOTAL.of(reading), Stat.EVENTS.of(reading)) == (12, 3)
    assert (Stat.AVG.of(reading), Stat.MAX.of(reading)) == (4, 8)
    assert Stat.RATE.of(reading) == pytest.approx(12 / 50)


def test_only_totals_grow_for_ever():
    assert {stat for stat in Stat if stat.is_sum} == {Stat.TOTAL, Stat.EVENTS}
