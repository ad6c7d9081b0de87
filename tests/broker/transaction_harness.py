"""A transactional producer in bare requests, of which a test chooses each."""

from broker_harness import NOW_MS, batch, unique, values

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

#: Apache Kafka says these for a moment, before its coordinator is there and while it writes markers.
_ASK_AGAIN = {
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
}


def patiently(ask, code_of=lambda answer: answer.error_code):
    while True:
        answer = ask()
        if code_of(answer) not in _ASK_AGAIN:
            return answer


class TxnProducer:
    """A producer with an ``id`` and an ``epoch``; a test may set both to wrong values."""

    def __init__(self, client, name=None, *, timeout_ms=60_000):
        self.client = client
        self.name = name or unique("txn")
        self.timeout_ms = timeout_ms
        self.id = self.epoch = -1
        self.sequences = {}

    def start(self, version=4, **fields):
        """InitProducerId; takes on what it is given."""
        find = {"key": self.name, "key_type": 1, "coordinator_keys": [self.name]}
        patiently(lambda: self.client.ask(Api.FIND_COORDINATOR, 3, **find))
        asked = {"transactional_id": self.name, "transaction_timeout": self.timeout_ms, **fields}
        answer = patiently(lambda: self.client.ask(Api.INIT_PRODUCER_ID, version, **asked))
        if answer.error_code == 0:
            self.becomes(answer.producer_id, answer.producer_epoch)
        return answer

    def becomes(self, producer_id, epoch):
        if (self.id, self.epoch) != (producer_id, epoch):
            self.sequences = {}
        self.id, self.epoch = producer_id, epoch

    def add(self, *partitions, version=3):
        """AddPartitionsToTxn as a client sends it; the codes."""
        topics = [{"name": topic, "partitions": [index]} for topic, index in partitions]
        identity = {"v3_and_below_producer_id": self.id, "v3_and_below_producer_epoch": self.epoch}
        asked = {"v3_and_below_transactional_id": self.name, "v3_and_below_topics": topics, **identity}
        codes = lambda answer: [  # noqa: E731
            result.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]
        return codes(
            patiently(lambda: self.client.ask(Api.ADD_PARTITIONS_TO_TXN, version, **asked), lambda a: codes(a)[0])
        )

    def write(self, topic, value=b"v", *, partition=0, version=9, transactional_id=..., topic_id=None):
        """One transactional batch of one record; the partition's answer."""
        sequence = self.sequences.get((topic, partition), 0)
        records = batch(
            value=value,
            timestamp_ms=NOW_MS,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = {"name": topic, "topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}
        name = self.name if transactional_id is ... else transactional_id
        fields = {"transactional_id": name, "acks": -1, "timeout": 10_000, "topic_data": [data]}
        answer = patiently(
            lambda: self.client.ask(Api.PRODUCE, version, **fields).responses[0].partition_responses[0],
        )
        if answer.error_code == 0:
            self.sequences[topic, partition] = sequence + 1
        return answer

    def end(self, *, commit=True, version=3):
        asked = {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}
        answer = patiently(lambda: self.client.ask(Api.END_TXN, version, committed=commit, **asked))
        if version >= 5 and answer.error_code == 0:
            self.becomes(answer.producer_id, answer.producer_epoch)
        return answer

    @property
    def state(self):
        """Its state now. (kio cannot read a description without a start time.)"""
        found = self.client.ask(Api.LIST_TRANSACTIONS, 0, state_filters=(), producer_id_filters=[self.id])
        (listed,) = found.transaction_states
        return listed.transaction_state

    def described(self):
        """As its coordinator sees it, once that has come to rest."""
        while True:
            asked = self.client.ask(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.name])
            (answer,) = asked.transaction_states
            if answer.transaction_state not in ("PrepareCommit", "PrepareAbort"):
                return answer

    def offsets_of(self, group, *, version=3):
        asked = {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}
        return patiently(lambda: self.client.ask(Api.ADD_OFFSETS_TO_TXN, version, group_id=group, **asked))


def committed(client, topic, *, partition=0):
    """The values that a read_committed reader gets, by reading as clients do: aborted ranges left out."""
    fields = {"isolation_level": 1, "partition_max_bytes": 1 << 20}
    answer = client.fetch((topic, partition, 0), **fields).responses[0].partitions[0]
    assert answer.error_code == 0
    return values(without_aborted(answer.records, answer.aborted_transactions))


def without_aborted(records, aborted):
    """Batches of transactions that were aborted, and markers, taken out of fetched bytes."""
    from headrace.protocol.record_body import decode_records
    from headrace.protocol.records import iter_headers

    waiting = sorted((each.first_offset, each.producer_id) for each in aborted or ())
    skipped, kept = set(), b""
    for position, header in iter_headers(records or b""):
        while waiting and waiting[0][0] <= header.last_offset:
            skipped.add(waiting.pop(0)[1])
        content = bytes(records[position : position + header.size_bytes])
        if header.is_control:
            (record,) = decode_records(content)
            if record.key == b"\x00\x00\x00\x00":
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            kept += content
    return kept
