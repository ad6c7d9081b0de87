"""Options of the clients: Java's names and defaults, Python's names, and clear refusals."""

import pytest

from headrace.client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig, parse_address

AT = {"bootstrap_servers": "b:1"}


def test_the_two_spellings_are_one_option_and_the_keyword_wins() -> None:
    assert ProducerConfig.load({"linger.ms": "7"}, **AT).linger_ms == 7
    assert ProducerConfig.load(**AT, linger_ms=8).linger_ms == 8
    assert ProducerConfig.load({"linger.ms": 7}, **AT, linger_ms=8).linger_ms == 8


def test_javas_defaults() -> None:
    producer, consumer, admin = ProducerConfig.load(**AT), ConsumerConfig.load(**AT), AdminConfig.load(**AT)
    assert (producer.acks, producer.batch_size, producer.linger_ms) == ("all", 16_384, 5)
    assert producer.enable_idempotence
    assert producer.receive_buffer_bytes == 32_768
    assert (consumer.auto_offset_reset, consumer.max_poll_records) == ("latest", 500)
    assert consumer.partition_assignment_strategy == ("range", "cooperative-sticky")
    assert admin.connections_max_idle_ms == 300_000
    assert (producer.api_timeout_ms, consumer.api_timeout_ms, admin.api_timeout_ms) == (60_000, 60_000, 60_000)


@pytest.mark.parametrize(
    ("given", "servers"),
    [
        ("a:1, b:2", ("a:1", "b:2")),
        (["a:1", "b"], ("a:1", "b:9092")),
        ("PLAINTEXT://a:1", ("a:1",)),
        ("[::1]:5", ("[::1]:5",)),
    ],
)
def test_servers_are_a_text_or_a_list(given: object, servers: tuple[str, ...]) -> None:
    assert AdminConfig.load(bootstrap_servers=given).bootstrap_servers == servers


@pytest.mark.parametrize("bad", ["a:b", ":1", "a:0", "a:70000"])
def test_servers_that_are_none(bad: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        AdminConfig.load(bootstrap_servers=bad)


def test_an_address_of_ipv6_loses_its_brackets() -> None:
    assert parse_address("[::1]:5") == ("::1", 5)
    assert parse_address("[::1]") == ("::1", 9092)


def test_without_servers_it_says_what_to_give() -> None:
    with pytest.raises(ValueError, match="bootstrap_servers is missing"):
        AdminConfig.load()


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"no option linger\.mss; did you mean linger\.ms \(linger_ms\)"):
        ProducerConfig.load(**AT, linger_mss=3)
    with pytest.raises(TypeError, match=r"ConsumerConfig has no option linger\.ms"):
        ConsumerConfig.load({"linger.ms": 3}, **AT)


def test_javas_options_without_a_meaning_here_are_taken() -> None:
    assert AdminConfig.load({"metric.reporters": "", "client.dns.lookup": "x"}, **AT).request_timeout_ms == 30_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"linger_ms": "soon"}, r"linger\.ms = 'soon': must be a whole number"),
        ({"linger_ms": -1}, r"linger\.ms = -1: must be at least 0"),
        ({"linger_ms": True}, "a whole number"),
        ({"enable_idempotence": "maybe"}, "true or false"),
        ({"acks": "2"}, "one of all, -1, 1, 0"),
        ({"compression_type": "rar"}, "one of none, gzip"),
        ({"security_protocol": "TELNET"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"key_serializer": "org.apache.X"}, "must be a function"),
        ({"enable_idempotence": True, "acks": 1}, "need acks=all"),
        ({"transactional_id": "x", "enable_idempotence": False}, "needs enable.idempotence"),
        ({"transactional_id": "x", "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"delivery_timeout_ms": 10}, "at least linger.ms"),
        ({"compression_gzip_level": 20}, "at most 9"),
        ({"compression_gzip_level": 0}, "must be 1 to 9, or -1"),
        ({"compression_lz4_level": 0}, "at least 1"),
        ({"compression_lz4_level": 18}, "at most 17"),
        ({"compression_zstd_level": 99}, "at most 22"),
        ({"partitioner_class": "com.foo.Bar"}, "one of Adaptive, RoundRobin, UniformSticky, or"),
    ],
)
def test_values_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProducerConfig.load(**AT, **options)


def test_idempotence_gives_way_unless_asked_for() -> None:
    assert not ProducerConfig.load(**AT, acks=0).enable_idempotence
    assert not ProducerConfig.load(**AT, retries=0).enable_idempotence
    assert ProducerConfig.load(**AT, acks=-1).acks == "all"


def test_the_delivery_timeout_follows_the_others_unless_given() -> None:
    assert ProducerConfig.load(**AT, request_timeout_ms=200_000).delivery_timeout_ms == 200_005


def test_consumers_options_that_depend_on_each_other() -> None:
    assert not ConsumerConfig.load(**AT).enable_auto_commit
    assert ConsumerConfig.load(**AT, group_id="g").enable_auto_commit
    with pytest.raises(ValueError, match=r"needs a group\.id"):
        ConsumerConfig.load(**AT, enable_auto_commit=True)
    for reset in ("first", "by_duration:Pxx", "by_duration:1h"):
        with pytest.raises(ValueError, match=r"by_duration|ISO 8601"):
            ConsumerConfig.load(**AT, auto_offset_reset=reset)
    assert ConsumerConfig.load(**AT, auto_offset_reset="by_duration:PT1H").auto_offset_reset == "by_duration:PT1H"
    for strategy in ("foo", "range,foo", ""):
        with pytest.raises(ValueError, match="range, roundrobin, sticky, cooperative-sticky"):
            ConsumerConfig.load(**AT, partition_assignment_strategy=strategy)
    java = "org.apache.kafka.clients.consumer.StickyAssignor,range"
    loaded = ConsumerConfig.load({"partition.assignment.strategy": java}, **AT)
    assert loaded.partition_assignment_strategy == ("sticky", "range")


@pytest.mark.parametrize("kind", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_each_option_has_a_type_and_a_text(kind: type[ClientConfig]) -> None:
    for option in kind.options():
        assert option.doc
        assert option.type in ("int", "boolean", "string", "list", "function", "class", "password")
        assert option.name == option.python_name.replace("_", ".")
