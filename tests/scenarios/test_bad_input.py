"""Malformed requests get Kafka's error code, or a closed connection with one log line, and disturb no other client.

One broker process serves the whole file, with one client that is connected from the beginning. After each test that
client must still be served. At the end the broker's memory is checked.
"""

import gzip
import socket
from contextlib import suppress
from random import Random
from struct import pack, pack_into
from time import monotonic

import cramjam
import pytest

from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_body import Record
from headrace.protocol.records import CRC_FIELD_AT, HEADER_BYTES, Codec, compute_crc, read_header
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.raw_client import ClosedByPeer, RawClient, decode_response, encode_request

NOW_MS = 1_700_000_000_000
SERVED_ROOM_BYTES = 400 * 1024 * 1024

TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "recoded": {"compression.type": "lz4"},
    "walked": {"headrace.walk.records": "true"},
}


class Served:
    def __init__(self, process):
        self.process = process
        self.bystander = RawClient(process.address)
        self._said = 0

    def connect(self):
        return RawClient(self.process.address)

    def new_lines(self):
        """Returns the lines that the broker has logged since the last call."""
        lines = [line for line in self.process.log.splitlines() if line]
        new, self._said = lines[self._said :], len(lines)
        return new

    def still_serves(self):
        assert self.process.is_running
        assert self.bystander.ask(Api.API_VERSIONS, 0).error_code == 0
        return True

    def produce(self, records, topic="plain", version=9):
        """Produces with a connection of its own: the code."""
        with self.connect() as client:
            return produce(client, records, topic, version).error_code


def produce(client, records, topic="plain", version=9):
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    answer = client.ask(Api.PRODUCE, version, transactional_id=None, acks=-1, timeout=5000, topic_data=data)
    return answer.responses[0].partition_responses[0]


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        served = Served(process)
        topics = [
            {
                "name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (),
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            for name, configs in TOPICS.items()
        ]  # fmt: skip
        created = served.bystander.ask(Api.CREATE_TOPICS, 7, topics=topics, timeout=5000, validate_only=False)
        assert {topic.error_code for topic in created.topics} == {0}
        yield served
        assert served.still_serves()
        served.bystander.close()
        assert "Traceback" not in process.log
        assert process.peak_resident_bytes < SERVED_ROOM_BYTES


@pytest.fixture
def served(whole_file):
    whole_file.new_lines()
    yield whole_file
    assert whole_file.still_serves()


# -- frames and messages


def uvarint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def framed(request):
    return pack(">i", len(request)) + request


def header_of(api_key, version, tags=b""):
    return pack(">hhih", api_key, version, 7, -1) + tags


A_NAME = b"\0\1t"

REFUSED = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100f8010000f40303") + bytes(240),
    "a negative length": pack(">i", -1),
    "the most negative length": pack(">i", -(2**31)),
    "a length over the limit": pack(">i", 104_857_601),
    "an empty frame": framed(b""),
    "half a header": framed(b"\0\3\0"),
    "noise": framed(bytes(range(200, 256)) * 5),
    "an unknown api": framed(header_of(1000, 0)),
    "a negative api": framed(header_of(-1, 0)),
    "an api between brokers": framed(header_of(4, 0)),
    "an unknown version": framed(header_of(3, 99)),
    "a negative version": framed(header_of(3, -1)),
    "a client id longer than the frame": framed(pack(">hhih", 3, 1, 7, 9999) + b"abc"),
    "a client id that is no UTF-8": framed(pack(">hhih", 3, 1, 7, 2) + b"\xff\xfe"),
    "a header with endless tags": framed(header_of(3, 12, uvarint(2**31 - 1))),
    "a header tag longer than the frame": framed(header_of(3, 12, b"\x01\x00" + uvarint(2**31 - 1))),
    "an array of 2**31 - 1": framed(header_of(3, 1) + pack(">i", 2**31 - 1)),
    "an array of -2": framed(header_of(3, 1) + pack(">i", -2)),
    "a compact array of 2**32 - 2": framed(header_of(3, 12, b"\0") + uvarint(2**32 - 1)),
    "an array of arrays that lie": framed(header_of(2, 1) + pack(">ii", -1, 1) + A_NAME + pack(">i", 2**31 - 1)),
    "null where an array must be": framed(header_of(2, 1) + pack(">ii", -1, -1)),
    "an isolation level that is none": framed(header_of(2, 2) + pack(">ibi", -1, 7, 0)),
    "a string longer than the frame": framed(header_of(3, 1) + pack(">ih", 1, 32767) + b"abc"),
    "a string of -5": framed(header_of(3, 1) + pack(">ih", 1, -5)),
    "a name that is no UTF-8": framed(header_of(3, 1) + pack(">ih", 1, 2) + b"\xff\xfe"),
    "records longer than the frame": framed(
        header_of(0, 3) + pack(">hhii", -1, 1, 1000, 1) + A_NAME + pack(">iii", 1, 0, 2**31 - 1)
    ),
    "a body tag longer than the frame": framed(
        header_of(18, 3, b"\0") + b"\x02a\x02b" + b"\x01\x07" + uvarint(2**31 - 1)
    ),
    "endless tags in the body": framed(header_of(18, 3, b"\0") + b"\x02a\x02b" + uvarint(2**31 - 1)),
    "a number of more than five bytes": framed(header_of(18, 3, b"\0") + b"\xff" * 12),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_connection_is_closed_with_one_line(served, name):
    host, port = served.process.address.rsplit(":", 1)
    own = f"127.0.1.{list(REFUSED).index(name) + 1}"  # the log repeats no line about the same host
    lines, deadline = [], monotonic() + 20
    while not lines and monotonic() < deadline:  # the log has at most 100 such lines in ten seconds
        with socket.create_connection((host, int(port)), timeout=10, source_address=(own, 0)) as client:
            client.sendall(REFUSED[name])
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
        lines = [line for line in served.new_lines() if own in line]
    (line,) = lines
    assert f"closing the connection of {own}:" in line
    assert len(line) < 400


def test_a_repeated_line_is_not_written(served):
    for _ in range(100):
        with served.connect() as client:
            client.send_bytes(REFUSED["noise"])
            assert client.is_closed_by_peer()
    assert len(served.new_lines()) <= 3  # the line, and counts of earlier tests


@pytest.mark.parametrize("cut", [1, 3, 4, 10, 20])
def test_a_frame_that_never_ends_holds_nobody_up(served, cut):
    request = framed(encode_request(Api.API_VERSIONS, 0, 1, "half"))
    with served.connect() as client:
        client.send_bytes(request[:cut])
        assert served.still_serves()
    assert served.still_serves()
    assert served.new_lines() == []


def test_a_length_alone_takes_no_memory(served):
    before_bytes = served.process.resident_bytes
    clients = [served.connect() for _ in range(50)]
    for client in clients:
        client.send_bytes(pack(">i", 100_000_000) + bytes(100))
    assert served.still_serves()
    assert served.process.resident_bytes - before_bytes < 16 * 1024 * 1024
    for client in clients:
        client.close()


def test_a_client_that_asks_and_never_reads_takes_no_memory(served):
    resource = {"resource_type": 2, "resource_name": "plain", "configuration_keys": None}
    request = framed(
        encode_request(Api.DESCRIBE_CONFIGS, 4, 1, "c", include_synonyms=True, include_documentation=True,
                       resources=[resource])
    )  # fmt: skip
    before_bytes = served.process.resident_bytes
    with served.connect() as client:
        client.socket.settimeout(0.3)  # the broker has stopped reading when a send takes that long
        with pytest.raises(TimeoutError):
            client.send_bytes(request * 1_000_000)
        assert served.still_serves()
        assert served.process.resident_bytes - before_bytes < 16 * 1024 * 1024


def test_a_newer_api_versions_is_answered_in_v0_with_what_we_speak(served):
    with served.connect() as client:
        client.send_frame(header_of(18, 99, b"\0") + b"\x06newer\x022\0\0\0")
        answer = decode_response(Api.API_VERSIONS, 0, client.read_frame())
        assert answer.error_code == ErrorCode.unsupported_version
        spoken = {each.api_key: each.max_version for each in answer.api_keys}
        assert spoken[18] >= 3
        assert client.ask(Api.API_VERSIONS, 3, client_software_name="n", client_software_version="1").error_code == 0
    assert served.new_lines() == []


def test_many_tagged_fields_are_skipped(served):
    tags = b"".join(uvarint(number) + b"\x01x" for number in range(5000, 9000))
    with served.connect() as client:
        client.send_frame(header_of(18, 3, b"\0") + b"\x02a\x02b" + uvarint(4000) + tags)
        assert decode_response(Api.API_VERSIONS, 3, client.read_frame()).error_code == 0


def test_what_follows_a_body_is_not_looked_at(served):
    with served.connect() as client:
        client.send_frame(encode_request(Api.API_VERSIONS, 0, 1, None) + b"more")
        assert decode_response(Api.API_VERSIONS, 0, client.read_frame()).error_code == 0


def test_requests_before_the_bad_one_are_answered(served):
    with served.connect() as client:
        good = framed(encode_request(Api.API_VERSIONS, 0, 1, None))
        client.send_bytes(good * 3 + REFUSED["noise"])
        for _ in range(3):
            assert decode_response(Api.API_VERSIONS, 0, client.read_frame()).error_code == 0
        assert client.is_closed_by_peer()


@pytest.mark.parametrize("count", [10_002, 2**31 - 1])
def test_absurdly_many_partitions_are_refused(served, count):
    topic = {
        "name": "wide", "num_partitions": count, "replication_factor": 1, "assignments": (), "configs": (),
    }  # fmt: skip
    answer = served.bystander.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=5000, validate_only=False)
    assert answer.topics[0].error_code == ErrorCode.policy_violation
    grown = {"name": "walked", "count": count, "assignments": None}
    answer = served.bystander.ask(Api.CREATE_PARTITIONS, 3, topics=[grown], timeout=5000, validate_only=False)
    assert answer.results[0].error_code == ErrorCode.policy_violation


# -- record batches


def batch(count=1, key=b"k", value=b"v", **fields):
    return build_batch([Record(number, NOW_MS, key, value, ()) for number in range(count)], **fields)


def altered(records, at, format_, value, *, fix_crc=True):
    data = bytearray(records)
    pack_into(format_, data, at, value)
    if fix_crc:
        pack_into(">I", data, CRC_FIELD_AT, compute_crc(data, 0, len(data)))
    return bytes(data)


def flipped(records, at):
    data = bytearray(records)
    data[at] ^= 1
    return bytes(data)


BASE_OFFSET, LENGTH, MAGIC, ATTRIBUTES, LAST_DELTA, MAX_TIMESTAMP, PRODUCER, EPOCH, SEQUENCE, COUNT = (
    0, 8, 16, 21, 23, 35, 43, 51, 53, 57,
)  # fmt: skip

BATCHES = {
    "none": (None, ErrorCode.invalid_record),
    "empty": (b"", ErrorCode.invalid_record),
    "a few bytes": (b"abc", ErrorCode.invalid_record),
    "a header cut short": (batch()[: HEADER_BYTES - 1], ErrorCode.invalid_record),
    "a header alone": (batch()[:HEADER_BYTES], ErrorCode.corrupt_message),
    "cut in the middle": (batch(9)[:-7], ErrorCode.corrupt_message),
    "a bit flipped in a record": (flipped(batch(), HEADER_BYTES + 3), ErrorCode.corrupt_message),
    "a bit flipped in the crc": (flipped(batch(), CRC_FIELD_AT), ErrorCode.corrupt_message),
    "magic 0": (altered(batch(), MAGIC, ">b", 0), ErrorCode.invalid_record),
    "magic 1": (altered(batch(), MAGIC, ">b", 1), ErrorCode.invalid_record),
    "magic 3": (altered(batch(), MAGIC, ">b", 3), ErrorCode.invalid_record),
    "a negative length": (altered(batch(), LENGTH, ">i", -1), ErrorCode.corrupt_message),
    "length 0": (altered(batch(), LENGTH, ">i", 0), ErrorCode.invalid_record),
    "a length of 2**31 - 1": (altered(batch(), LENGTH, ">i", 2**31 - 1), ErrorCode.corrupt_message),
    "two batches": (batch() + batch(), ErrorCode.invalid_record),
    "a batch and some": (batch() + b"more", ErrorCode.invalid_record),
    "a count of 0": (altered(batch(), COUNT, ">i", 0), ErrorCode.invalid_record),
    "a negative count": (altered(batch(), COUNT, ">i", -1), ErrorCode.invalid_record),
    "a count of 2**31 - 1": (altered(batch(), COUNT, ">i", 2**31 - 1), ErrorCode.invalid_record),
    "a count that is not the last delta": (altered(batch(3), LAST_DELTA, ">i", 5), ErrorCode.invalid_record),
    "a negative last delta": (altered(batch(), LAST_DELTA, ">i", -1), ErrorCode.invalid_record),
    "an unknown codec": (altered(batch(), ATTRIBUTES, ">h", 7), ErrorCode.unsupported_compression_type),
    "a control batch": (altered(batch(), ATTRIBUTES, ">h", 0x20), ErrorCode.invalid_record),
    "the broker's own time": (altered(batch(), ATTRIBUTES, ">h", 0x08), ErrorCode.invalid_timestamp),
    "the far future": (altered(batch(), MAX_TIMESTAMP, ">q", 2**62), ErrorCode.invalid_timestamp),
    "a producer without an epoch": (altered(batch(), PRODUCER, ">q", 5), ErrorCode.invalid_record),
    "too large": (batch(value=bytes(2_000_000)), ErrorCode.message_too_large),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_bad_batch_gets_kafkas_code(served, name):
    records, code = BATCHES[name]
    with served.connect() as client:
        answer = produce(client, records)
        assert answer.error_code == code, answer.error_message
        assert answer.base_offset == -1
        assert client.ask(Api.API_VERSIONS, 0).error_code == 0, "the connection goes on"
    assert served.new_lines() == []


def test_zstd_needs_a_version_that_has_it(served):
    assert served.produce(batch(codec=Codec.zstd), version=6) == ErrorCode.unsupported_compression_type
    assert served.produce(batch(codec=Codec.zstd), version=7) == 0


def test_a_partition_or_topic_that_is_not_there(served):
    assert served.produce(batch(), topic="nowhere") == ErrorCode.unknown_topic_or_partition


def test_one_bad_partition_does_not_spoil_the_others(served):
    data = [
        {"name": "plain", "partition_data": [{"index": 0, "records": batch()}, {"index": 7, "records": batch()}]},
        {"name": "walked", "partition_data": [{"index": 0, "records": flipped(batch(), CRC_FIELD_AT)}]},
    ]
    answer = served.bystander.ask(
        Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=5000, topic_data=data
    )  # fmt: skip
    codes = [each.error_code for topic in answer.responses for each in topic.partition_responses]
    assert codes == [0, ErrorCode.unknown_topic_or_partition, ErrorCode.corrupt_message]


# -- what is inside a batch


def with_body(body, *, count=1, codec=Codec.none):
    """A batch with these bytes for its records, under a right crc."""
    head = bytearray(batch()[:HEADER_BYTES])
    pack_into(">i", head, LENGTH, HEADER_BYTES - 12 + len(body))
    pack_into(">h", head, ATTRIBUTES, codec)
    pack_into(">i", head, LAST_DELTA, count - 1)
    pack_into(">i", head, COUNT, count)
    data = head + body
    pack_into(">I", data, CRC_FIELD_AT, compute_crc(data, 0, len(data)))
    assert read_header(data).size_bytes == len(data)
    return bytes(data)


A_RECORD = batch()[HEADER_BYTES:]

INSIDES = {
    "nothing": b"",
    "noise": bytes(range(256)),
    "a record length past the end": b"\xfe\xff\xff\xff\x0f" + bytes(20),
    "a negative record length": b"\x01" + bytes(20),
    "a key length past the end": b"\x18\x00\x00\x00\xfe\xff\xff\xff\x0f" + bytes(6),
    "an endless varint": b"\xff" * 30,
    "bytes after the last record": A_RECORD + b"\0",
    "two records where one is said": A_RECORD * 2,
    "a header count of 2**31 - 1": b"\x18\x00\x00\x00\x02k\x02v" + uvarint(2**32 - 2),
}


@pytest.mark.parametrize("topic", ["compacted", "walked"])
@pytest.mark.parametrize("name", INSIDES)
def test_records_that_contradict_themselves_are_refused_where_they_are_read(served, topic, name):
    assert served.produce(with_body(INSIDES[name]), topic) == ErrorCode.invalid_record


@pytest.mark.parametrize("topic", ["compacted", "walked", "recoded"])
@pytest.mark.parametrize("codec", [Codec.gzip, Codec.snappy, Codec.zstd])
def test_what_cannot_be_decompressed_is_corrupt(served, topic, codec):
    assert served.produce(with_body(b"this was never compressed", codec=codec), topic) == ErrorCode.corrupt_message


def test_a_compacted_topic_takes_no_record_without_a_key(served):
    with served.connect() as client:
        answer = produce(client, batch(key=None), "compacted")
    assert answer.error_code == ErrorCode.invalid_record
    assert [each.batch_index for each in answer.record_errors] == [0]


COMPRESSED = {
    Codec.gzip: lambda data: gzip.compress(data, 9),
    Codec.snappy: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    Codec.lz4: lambda data: bytes(cramjam.lz4.compress(data)),
    Codec.zstd: lambda data: bytes(cramjam.zstd.compress(data, 3)),
}
BOMB_BYTES = 120_000_000


@pytest.fixture(scope="module")
def bombs():
    zeros = bytes(BOMB_BYTES)
    return {codec: compress(zeros) for codec, compress in COMPRESSED.items()}


@pytest.mark.parametrize("topic", ["compacted", "recoded"])
@pytest.mark.parametrize("codec", [Codec.gzip, Codec.lz4, Codec.zstd])
def test_a_decompression_bomb_is_refused_in_bounded_memory(served, bombs, topic, codec):
    if topic == "recoded" and codec is Codec.lz4:
        pytest.skip("is stored as it came: nothing is decompressed")
    assert len(bombs[codec]) < 1_000_000
    code = served.produce(with_body(bombs[codec], codec=codec), topic)
    assert code in (ErrorCode.message_too_large, ErrorCode.invalid_record, ErrorCode.corrupt_message)
    assert served.process.peak_resident_bytes < SERVED_ROOM_BYTES


@pytest.mark.parametrize("topic", ["compacted", "walked"])
def test_millions_of_records_in_a_few_kilobytes_are_not_all_in_memory(served, topic):
    count = 3_000_000
    body = bytes(cramjam.zstd.compress(A_RECORD * count, 3))
    assert len(body) < 100_000
    assert served.produce(with_body(body, count=count, codec=Codec.zstd), topic) == ErrorCode.invalid_record
    assert served.process.peak_resident_bytes < SERVED_ROOM_BYTES


def test_a_bomb_on_a_plain_topic_is_stored_as_it_came(served, bombs):
    """The broker does not decode the batch; its readers decide."""
    assert served.produce(with_body(bombs[Codec.zstd], codec=Codec.zstd)) == 0


# -- the whole socket


def requests():
    """Right requests of many kinds, to be spoiled."""
    name = {"name": "plain"}
    return [
        encode_request(Api.API_VERSIONS, 3, 1, "c", client_software_name="n", client_software_version="1"),
        encode_request(Api.METADATA, 12, 1, "c", topics=[name], allow_auto_topic_creation=False,
                       include_topic_authorized_operations=True),
        encode_request(Api.METADATA, 1, 1, "c", topics=[name]),
        encode_request(Api.PRODUCE, 9, 1, "c", transactional_id=None, acks=1, timeout=1000,
                       topic_data=[{**name, "partition_data": [{"index": 0, "records": batch(3)}]}]),
        encode_request(Api.PRODUCE, 3, 1, "c", transactional_id=None, acks=1, timeout=1000,
                       topic_data=[{"name": "walked", "partition_data": [{"index": 0, "records": batch(3)}]}]),
        encode_request(Api.FETCH, 12, 1, "c", replica_id=-1, max_wait=1, min_bytes=1, max_bytes=1000,
                       isolation_level=0, session_id=0, session_epoch=0, forgotten_topics_data=[], rack_id="",
                       topics=[{"topic": "plain", "partitions": [
                           {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}]),
        encode_request(Api.LIST_OFFSETS, 7, 1, "c", replica_id=-1, isolation_level=0,
                       topics=[{**name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]),
        encode_request(Api.DESCRIBE_CONFIGS, 4, 1, "c", include_synonyms=True, include_documentation=False,
                       resources=[{"resource_type": 2, "resource_name": "plain", "configuration_keys": None}]),
        encode_request(Api.CREATE_TOPICS, 7, 1, "c", timeout=1000, validate_only=True, topics=[
            {"name": "x", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}]),
        encode_request(Api.DELETE_RECORDS, 2, 1, "c", timeout=1000, topics=[
            {**name, "partitions": [{"partition_index": 0, "offset": 0}]}]),
        encode_request(Api.OFFSET_FOR_LEADER_EPOCH, 4, 1, "c", replica_id=-1, topics=[
            {"topic": "plain", "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]),
        encode_request(Api.INIT_PRODUCER_ID, 4, 1, "c", transactional_id=None, transaction_timeout=1000,
                       producer_id=-1, producer_epoch=-1),
        encode_request(Api.DESCRIBE_TOPIC_PARTITIONS, 0, 1, "c", topics=[name], response_partition_limit=10,
                       cursor=None),
        encode_request(Api.DESCRIBE_LOG_DIRS, 4, 1, "c", topics=None),
        encode_request(Api.DESCRIBE_PRODUCERS, 0, 1, "c", topics=[{**name, "partition_indexes": [0]}]),
    ]  # fmt: skip


def spoiled(request, random):
    data = bytearray(request)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(8, len(data) + 1)  # api, version and correlation id stay
        match random.randrange(5):
            case 0:
                data[at:at] = random.randbytes(random.randint(1, 6))
            case 1:
                del data[at : at + random.randint(1, 6)]
            case 2:
                data[at : at + 4] = random.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\0\0\0"))
            case 3:
                data[at : at + 5] = b"\xff\xff\xff\xff\x0f"
            case 4 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
    return bytes(data)


def test_hundreds_of_spoiled_requests_do_not_end_the_broker(served):
    random, kinds = Random(20261115), requests()
    outcomes = {"answered": 0, "closed": 0, "waits": 0}
    for number in range(600):
        with served.connect() as client:
            client.socket.settimeout(0.2)
            client.send_frame(spoiled(kinds[number % len(kinds)], random))
            try:
                client.read_frame()
                outcomes["answered"] += 1
            except ClosedByPeer:
                outcomes["closed"] += 1
            except TimeoutError:
                outcomes["waits"] += 1  # a Fetch whose max_wait was spoiled, or a Produce with acks=0
    assert served.still_serves()
    assert outcomes["answered"] > 50, outcomes
    assert outcomes["closed"] > 50, outcomes
    failures = [line for line in served.new_lines() if " ERROR " in line]
    assert not failures, failures[:5]


def test_noise_on_many_connections_at_once(served):
    random = Random(7)
    clients = [served.connect() for _ in range(40)]
    for client in clients:
        client.send_frame(random.randbytes(random.randrange(1, 400)))
    assert served.still_serves()
    for client in clients:
        assert client.is_closed_by_peer()
        client.close()
