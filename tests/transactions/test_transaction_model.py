"""Producers of one transactional id that crash, come back, time out and send late, in any order (KIP-890).

Each value carries the number of the transaction that its producer meant it for. A transaction's values must be visible
all or not at all, as its producer was answered, and no value may become part of another transaction.
"""

from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st
from transaction_coordinator_harness import T0, T1, TIMEOUT_MS, TransactionCoordinatorHarness

from headrace.protocol.errors import KafkaError
from headrace.transactions.metadata import VERSION_2

PARTITIONS = (T0, T1)

#: Mostly the newest producer.
index = st.sampled_from([0, 0, 0, 0, 1, 2])
partition = st.sampled_from(PARTITIONS)
write = st.tuples(st.just("write"), index, partition)
write_late = st.tuples(st.just("write late"), index, partition)
arrive = st.tuples(st.just("arrive"), st.integers(0, 2))
end = st.tuples(st.just("end"), index, st.booleans())
rare = st.sampled_from([("start",), ("time passes",), ("restart",)])
operations = st.lists(st.one_of(write, write_late, arrive, end, write, write_late, arrive, end, rare), max_size=30)


class Producer:
    def __init__(self, identity, number):
        self.identity, self.number = identity, number
        self.sequences = dict.fromkeys(PARTITIONS, 0)
        self.is_failed = False
        self.on_the_way = 0

    def next_transaction(self, identity, number):
        self.__init__(identity, number)


class Model:
    def __init__(self, harness):
        self.harness = harness
        self.numbers = count()
        self.values = count()
        self.producers = []
        #: Requests that have left their producer and not arrived.
        self.late = []
        self.accepted, self.committed, self.ended = [], set(), set()

    def start(self):
        self.producers.append(Producer(self.harness.start(), next(self.numbers)))

    def _producer(self, index):
        """The newest is 0; older ones do not know that they are."""
        return self.producers[-1 - index % len(self.producers)] if self.producers else None

    def _request(self, producer, partition):
        value = b"%d/%d" % (producer.number, next(self.values))
        request = (producer, producer.number, producer.identity, partition, value, producer.sequences[partition])
        producer.sequences[partition] += 1
        return request

    def write(self, index, partition):
        producer = self._producer(index)
        if producer is not None:
            self._arrives(*self._request(producer, partition))

    def write_late(self, index, partition):
        producer = self._producer(index)
        if producer is not None:
            producer.on_the_way += 1
            self.late.append(self._request(producer, partition))

    def arrive(self, index):
        if self.late:
            request = self.late.pop(index % len(self.late))
            if request[0].number == request[1]:
                request[0].on_the_way -= 1
            self._arrives(*request)

    def _arrives(self, producer, number, identity, partition, value, sequence):
        """As Produce does it from v12 on: a partition's first write asks the coordinator."""
        harness = self.harness
        try:
            if not harness.partitions.leader(*partition).log.producers.has_open_transaction(*identity):
                harness.add(identity, partition, version=VERSION_2)
            harness.write(identity, partition, value, sequence)
        except KafkaError:
            if producer.number == number:
                producer.is_failed = True
            return
        assert number not in self.ended, f"{value} came after its transaction's end, and was taken"
        self.accepted.append((number, partition, value))

    def end(self, index, is_commit):
        producer = self._producer(index)
        if producer is None:
            return
        # A producer commits only what was all answered.
        is_commit = is_commit and not producer.is_failed and not producer.on_the_way
        try:
            identity = self.harness.end(producer.identity, commit=is_commit, version=VERSION_2)
        except KafkaError:
            producer.is_failed = True
            return
        assert producer.number not in self.ended
        self.ended.add(producer.number)
        if is_commit:
            self.committed.add(producer.number)
        producer.next_transaction(identity, next(self.numbers))

    def time_passes(self):
        self.harness.pass_ms(TIMEOUT_MS)

    def restart(self):
        self.harness.restart()

    def check(self, *, at_the_end):
        for partition in PARTITIONS:
            seen = self.harness.committed(partition)
            expected = [
                value for number, where, value in self.accepted if where == partition and number in self.committed
            ]
            if at_the_end:
                assert seen == expected
            else:  # what lies behind an open transaction is not seen yet
                assert seen == expected[: len(seen)]


@settings(max_examples=150, deadline=None)
@given(operations)
@example([("write", 0, T0), ("write late", 0, T0), ("end", 0, False), ("arrive", 0)])
def test_a_transaction_is_what_its_producer_meant(operations):
    with TemporaryDirectory() as folder:
        model = Model(TransactionCoordinatorHarness(Path(folder) / "data").load())
        try:
            model.start()
            for name, *arguments in operations:
                getattr(model, name.replace(" ", "_"))(*arguments)
                model.check(at_the_end=False)
            model.start()  # which aborts what is open
            model.check(at_the_end=True)
            assert model.harness.is_all_stable()
        finally:
            model.harness.kill()
