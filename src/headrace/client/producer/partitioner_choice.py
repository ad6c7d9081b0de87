"""``partitioner.class``: one of ours by name, or a partitioner of the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.producer.partitioners import Adaptive, Partitioner, RoundRobin, UniformSticky

if TYPE_CHECKING:
    from headrace.client.config import ProducerConfig

#: Ours, by their names and by those of the Java classes that do the same.
NAMES: dict[str, type[Partitioner]] = {
    "Adaptive": Adaptive,
    "DefaultPartitioner": Adaptive,
    "RoundRobin": RoundRobin,
    "RoundRobinPartitioner": RoundRobin,
    "UniformSticky": UniformSticky,
    "UniformStickyPartitioner": UniformSticky,
}


def known_partitioner(wanted: object) -> Partitioner | type[Partitioner]:
    """What a value of ``partitioner.class`` names.

    :raises ValueError: if it names nothing.
    """
    if isinstance(wanted, Partitioner) or (isinstance(wanted, type) and issubclass(wanted, Partitioner)):
        return wanted
    if wanted is None:
        return Adaptive
    if isinstance(wanted, str) and (found := NAMES.get(wanted.rpartition(".")[2])) is not None:
        return found
    known = ", ".join(name for name in NAMES if not name.endswith("Partitioner"))
    raise ValueError(
        f"partitioner.class = {wanted!r}: one of {known}, or a headrace.client.producer.partitioners.Partitioner"
    )


def choose_partitioner(config: ProducerConfig) -> Partitioner:
    found = known_partitioner(config.partitioner_class)
    if found is Adaptive:
        return Adaptive(config.batch_size, is_adaptive=config.partitioner_adaptive_partitioning_enable)
    return found() if isinstance(found, type) else found
