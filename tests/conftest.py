"""For all tests: a busy machine may pause any of them, so Hypothesis times none of its examples."""

from hypothesis import settings

settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")
