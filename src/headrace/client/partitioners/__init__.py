"""Partitioners: they choose the partition of a record.

``strategies`` has the base class :class:`Partitioner` and the three that come with the producer. ``murmur2`` is the
hash of record keys. ``choice`` reads the option ``partitioner.class``.
"""

from headrace.client.partitioners.strategies import Adaptive, Partitioner, RoundRobin, UniformSticky

__all__ = ["Adaptive", "Partitioner", "RoundRobin", "UniformSticky"]
