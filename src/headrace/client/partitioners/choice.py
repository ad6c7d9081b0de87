"""Reads the option ``partitioner.class``: the name of one of our partitioners, or a partitioner of the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.partitioners.strategies import Adaptive, Partitioner, RoundRobin, UniformSticky

if TYPE_CHECKING:
    from headrace.client.config import ProducerConfig

#: Our partitioners, by their own names and by the names of the Java classes that behave the same.
NAMES: dict[str, type[Partitioner]] = {
    "Adaptive": Adaptive,
    "DefaultPartitioner": Adaptive,
    "RoundRobin": RoundRobin,
    "RoundRobinPartitioner": RoundRobin,
    "UniformSticky": UniformSticky,
    "UniformStickyPartitioner": UniformSticky,
}


def known_partitioner(value: object) -> Partitioner | type[Partitioner]:
    """Returns the partitioner, or its class, that a value of ``partitioner.class`` names.

    :raises ValueError: if the value names no partitioner.
    """
    if isinstance(value, Partitioner) or (isinstance(value, type) and issubclass(value, Partitioner)):
        return value
    if value is None:
        return Adaptive
    if isinstance(value, str) and (found := NAMES.get(value.rpartition(".")[2])) is not None:
        return found
    known = ", ".join(name for name in NAMES if not name.endswith("Partitioner"))
    raise ValueError(
        f"partitioner.class = {value!r}: must be one of {known}, or a headrace.client.partitioners.Partitioner"
    )


def choose_partitioner(config: ProducerConfig) -> Partitioner:
    """Makes the partitioner that a producer's options ask for."""
    found = known_partitioner(config.partitioner_class)
    if found is Adaptive:
        return Adaptive(config.batch_size, is_adaptive=config.partitioner_adaptive_partitioning_enable)
    return found() if isinstance(found, type) else found
