"""A cluster in one process, on a clock that nobody waits for, with faults that come from a seed."""
