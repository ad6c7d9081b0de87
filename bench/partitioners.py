"""Shows the skew that KIP-794 removes: how many records each of three partitions gets if one of them is slow.

There is no broker and no clock: a producer of 100-byte records on simulated time, linger.ms=0, one request in flight
per partition. Two brokers answer after 1 ms, one after 20 ms. Run: ``python bench/partitioners.py``.
"""

from collections import Counter
from random import Random

from headrace.client.partitioners import Adaptive, Partitioner, RoundRobin, UniformSticky
from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.accumulator_options import AccumulatorOptions
from headrace.client.producer.batch import ProducerBatch
from headrace.client.producer.buffer_pool import BufferPool
from headrace.client.producer.record import ProducerRecord

PARTITIONS = (0, 1, 2)
ANSWER_MS = {0: 1, 1: 1, 2: 20}
VALUE = b"x" * 100
RECORD_BYTES = 110


def simulate(partitioner: Partitioner, *, duration_ms: int = 1000, records_a_ms: int = 60) -> Counter[int]:
    """How many records went to each partition."""
    accumulator = Accumulator(AccumulatorOptions(linger_ms=0), BufferPool(32 << 20))
    answers: dict[int, list[ProducerBatch]] = {}
    given: Counter[int] = Counter(dict.fromkeys(PARTITIONS, 0))
    for now_ms in range(duration_ms):
        for batch in answers.pop(now_ms, []):
            accumulator.completion.complete(batch)
            accumulator.unmute("t", batch.partition)
        for _ in range(records_a_ms):
            given[_send(accumulator, partitioner, now_ms)] += 1
            # The sender wakes up after each record, as it does without linger.
            for partition in PARTITIONS:
                for batch in accumulator.drain(partition, [("t", partition)], now_ms, 1 << 20):
                    accumulator.mute("t", partition)
                    answers.setdefault(now_ms + ANSWER_MS[partition], []).append(batch)
        partitioner.on_load("t", accumulator.load_of("t", PARTITIONS))
    return given


def _send(accumulator: Accumulator, partitioner: Partitioner, now_ms: int) -> int:
    partition = partitioner.partition("t", len(PARTITIONS), PARTITIONS)
    needs_batch = not accumulator.has_room("t", partition, RECORD_BYTES)
    if needs_batch and partitioner.on_batch_done("t", partition, len(PARTITIONS), PARTITIONS):
        partition = partitioner.partition("t", len(PARTITIONS), PARTITIONS)
    batch = accumulator.append(ProducerRecord("t", partition, None, VALUE, (), now_ms, None), partition, now_ms)
    assert batch is not None, "buffer.memory is larger than what is produced"
    partitioner.on_appended("t", RECORD_BYTES, is_batch_done=not accumulator.has_room("t", partition, RECORD_BYTES))
    return partition


def main() -> None:
    print(f"{'partitioner':<16}{'fast':>8}{'fast':>8}{'slow':>8}   share of the slow one")
    kinds: dict[str, Partitioner] = {
        "RoundRobin": RoundRobin(),
        "UniformSticky": UniformSticky(Random(1).randrange),
        "uniform KIP-794": Adaptive(16384, Random(1).randrange, is_adaptive=False),
        "Adaptive": Adaptive(16384, Random(1).randrange),
    }
    for name, partitioner in kinds.items():
        given = simulate(partitioner)
        counts = "".join(f"{given[partition]:>8}" for partition in PARTITIONS)
        print(f"{name:<16}{counts}   {given[2] / given.total():.0%}")


if __name__ == "__main__":
    main()
