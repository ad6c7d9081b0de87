"""What tests need, shipped: the pytest fixture, a clock that only moves when told, a disk that fails on demand."""

from headrace.testing.clock import ManualClock

__all__ = ["ManualClock"]
