"""``partitioner.class``: one of ours by name, or a partitioner of the user's own."""

from headrace.client.config import ProducerConfig
from headrace.client.partitioners import Adaptive, Partitioner, RoundRobin, UniformSticky

#: Ours, by their names and by those of the Java classes that do the same.
NAMES: dict[str, type[Partitioner]] = {
    "RoundRobin": RoundRobin,
    "RoundRobinPartitioner": RoundRobin,
    "UniformSticky": UniformSticky,
    "UniformStickyPartitioner": UniformSticky,
}
_DEFAULTS = ("Adaptive", "DefaultPartitioner")


def choose_partitioner(config: ProducerConfig) -> Partitioner:
    """
    :raises ValueError: if the name is not known.
    """
    wanted = config.partitioner_class
    if isinstance(wanted, type) and issubclass(wanted, Partitioner):
        wanted = wanted()
    if isinstance(wanted, Partitioner):
        return wanted
    if wanted is None or (isinstance(wanted, str) and wanted.rpartition(".")[2] in _DEFAULTS):
        return Adaptive(config.batch_size, is_adaptive=config.partitioner_adaptive_partitioning_enable)
    if isinstance(wanted, str) and (found := NAMES.get(wanted.rpartition(".")[2])) is not None:
        return found()
    known = ", ".join([_DEFAULTS[0], *(name for name in NAMES if not name.endswith("Partitioner"))])
    raise ValueError(f"partitioner.class = {wanted!r}: one of {known}, or a headrace.client.partitioners.Partitioner")
