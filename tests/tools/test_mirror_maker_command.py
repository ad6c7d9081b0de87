"""headrace mirror-maker between two brokers: what is copied, what goes on where, and what is said."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace import Admin, AsyncProducer, Broker, Consumer, Producer, TopicPartition
from headrace.client.errors import BrokerUnreachable
from headrace.client.mirror import topics
from headrace.client.mirror.delivery import ExactlyOnce
from headrace.client.mirror.mirror import Mirror
from headrace.client.mirror.options import MirrorError, MirrorEvents
from headrace.client.mirror.session import Session
from headrace.tools import mirror_maker


class Clusters:
    def __init__(self, source: Broker, target: Broker) -> None:
        self.source_address, self.target_address = source.bootstrap_servers, target.bootstrap_servers
        self.source = Admin(bootstrap_servers=self.source_address)
        self.target = Admin(bootstrap_servers=self.target_address)


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    with Broker() as source, Broker() as target:
        made = Clusters(source, target)
        with made.source, made.target:
            yield made


@pytest.fixture
def mirror(clusters, capsys):
    """Runs it until it has caught up; the events that it told."""

    def run(*arguments, code=0):
        ends = ("--source", clusters.source_address, "--target", clusters.target_address)
        assert mirror_maker.main([*ends, "--once", "--json", *map(str, arguments)]) == code
        captured = capsys.readouterr()
        return [json.loads(line) for line in captured.out.splitlines()] if code == 0 else captured.err

    return run


def read(address: str, topic: str, partitions: int = 1, isolation: str = "read_committed"):
    """(partition, key, value, timestamp, headers) of all records."""
    found = []
    config = {"auto.offset.reset": "earliest", "isolation.level": isolation}
    with Consumer(bootstrap_servers=address, config=config) as consumer:
        places = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(places)
        ends = consumer.end_offsets(*places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [(r.partition, r.key, r.value, r.timestamp_ms, tuple(r.headers)) for r in consumer.poll(500)]
    return sorted(found, key=lambda record: record[0])


def write(address: str, topic: str, values, **options) -> None:
    with Producer(bootstrap_servers=address) as producer:
        for value in values:
            producer.send(topic, value, **options)


def test_records_arrive_as_they_are(clusters, mirror):
    clusters.source.create_topic("whole", 3, configs={"retention.ms": "-1"})
    with Producer(bootstrap_servers=clusters.source_address) as producer:
        for index in range(3):
            producer.send("whole", None, key=b"k", partition=index, timestamp_ms=5_000 + index)
            producer.send(
                "whole", b"", partition=index, timestamp_ms=1, headers=[("a", b"1"), ("a", b""), ("\u00e9", b"2")]
            )
            producer.send("whole", b"\x00\xff" * 9, key=b"", partition=index, timestamp_ms=7_000)
    events = mirror("--include", "whole")
    assert events[0] == {"event": "mirroring", "topic": "whole", "target": "whole", "partitions": 3}
    assert events[-1]["event"] == "ended"
    assert (events[-1]["records"], events[-1]["exactly_once"]) == (9, True)
    assert read(clusters.target_address, "whole", 3) == read(clusters.source_address, "whole", 3)
    assert clusters.target.describe_config("topic", "whole")["retention.ms"].value == "-1"


def test_it_goes_on_where_it_ended(clusters, mirror):
    write(clusters.source_address, "going", [b"1", b"2"])
    assert mirror("--include", "going", "--name", "g")[-1]["records"] == 2
    assert mirror("--include", "going", "--name", "g")[-1]["records"] == 0
    write(clusters.source_address, "going", [b"3"])
    assert mirror("--include", "going", "--name", "g")[-1]["records"] == 1
    assert [record[2] for record in read(clusters.target_address, "going")] == [b"1", b"2", b"3"]


def test_positions_outlive_their_group(clusters, mirror):
    """A broker forgets groups that are not used; the runs tell as well."""
    write(clusters.source_address, "idle", [b"1", b"2"])
    mirror("--include", "idle", "--name", "i")
    clusters.target.delete_group("headrace-mirror.i")
    write(clusters.source_address, "idle", [b"3"])
    assert mirror("--include", "idle", "--name", "i")[-1]["records"] == 1


def test_a_topic_that_was_made_anew_is_mirrored_anew(clusters, mirror):
    write(clusters.source_address, "anew", [b"1", b"2"])
    mirror("--include", "anew", "--name", "n")
    clusters.target.delete_topic("anew")
    assert mirror("--include", "anew", "--name", "n")[-1]["records"] == 2
    clusters.source.delete_topic("anew")
    write(clusters.source_address, "anew", [b"3"])
    events = mirror("--include", "anew", "--name", "n")
    assert [event["event"] for event in events] == ["note", "mirroring", "ended"]
    assert events[0]["text"] == (
        "anew was deleted and created again, at the source or at the target: it is mirrored from its start"
    )
    assert [record[2] for record in read(clusters.target_address, "anew")] == [b"1", b"2", b"3"]


def test_a_crash_before_anything_of_a_topic_made_anew_is_mirrored(clusters, mirror, monkeypatch):
    """The position that was committed first counts, not what is known of the topic that was there before."""
    write(clusters.source_address, "anew-2", [b"1", b"2", b"3"])
    mirror("--include", "anew-2", "--name", "n2")
    clusters.source.delete_topic("anew-2")
    write(clusters.source_address, "anew-2", [b"4", b"5"])

    class Crash(Exception):
        pass

    async def crashes(self, stopping):
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(Session, "run", crashes)
        with pytest.raises(Crash):
            mirror("--include", "anew-2", "--name", "n2")
    assert mirror("--include", "anew-2", "--name", "n2")[-1]["records"] == 2


def test_new_names_and_partitions(clusters, mirror):
    for name in ("n.a", "n.b"):
        clusters.source.create_topic(name, 1)
        write(clusters.source_address, name, [name.encode()])
    events = mirror("--include", "n[.].*", "--topic-prefix", "m.", "--rename", "n.b=c", "--name", "names")
    assert [(event["topic"], event["target"]) for event in events[:-1]] == [("n.a", "m.n.a"), ("n.b", "c")]
    clusters.source.create_partitions({"n.a": 3})
    write(clusters.source_address, "n.a", [b"late"], partition=2)
    mirror("--include", "n[.].*", "--topic-prefix", "m.", "--rename", "n.b=c", "--name", "names")
    assert [(r[0], r[2]) for r in read(clusters.target_address, "m.n.a", 3)] == [(0, b"n.a"), (2, b"late")]
    assert [r[2] for r in read(clusters.target_address, "c")] == [b"n.b"]


def test_only_what_was_committed_is_mirrored(clusters, mirror):
    with Producer(bootstrap_servers=clusters.source_address, transactional_id="t") as producer:
        producer.init_transactions()
        for value, is_committed in ((b"yes", True), (b"no", False), (b"yes too", True), (b"nor this", False)):
            producer.begin_transaction()
            producer.send("committed", value)
            producer.flush()
            (producer.commit_transaction if is_committed else producer.abort_transaction)()
    assert mirror("--include", "committed")[-1]["records"] == 2
    assert [record[2] for record in read(clusters.target_address, "committed")] == [b"yes", b"yes too"]


def test_from_now_on(clusters, mirror):
    write(clusters.source_address, "later", [b"before"])
    assert mirror("--include", "later", "--start", "latest", "--name", "l")[-1]["records"] == 0
    write(clusters.source_address, "later", [b"after"])
    assert mirror("--include", "later", "--start", "latest", "--name", "l")[-1]["records"] == 1
    assert [record[2] for record in read(clusters.target_address, "later")] == [b"after"]


def test_at_least_once(clusters, mirror):
    write(clusters.source_address, "plain", [b"1", b"2"])
    arguments = ("--include", "plain", "--delivery", "at-least-once", "--name", "p")
    assert mirror(*arguments)[-1]["records"] == 2
    assert mirror(*arguments)[-1]["records"] == 0
    # No markers of transactions between.
    assert clusters.target.list_offsets({TopicPartition("plain", 0): "latest"}).all().popitem()[1].offset == 2


def test_offsets_of_groups_are_translated(clusters, mirror):
    at = TopicPartition("translated", 0)
    arguments = ("--include", "translated", "--name", "o", "--sync-group-offsets", "readers-.*")
    for part in range(3):
        write(clusters.source_address, "translated", [b"%d" % (part * 10 + i) for i in range(10)])
        mirror(*arguments)
    clusters.source.alter_group_offsets("readers-1", {at: 25})
    clusters.source.alter_group_offsets("others", {at: 25})
    (moved,) = [event for event in mirror(*arguments) if event["event"] == "groups"]
    assert (moved["group"], list(moved["offsets"])) == ("readers-1", ["translated-0"])
    assert moved["offsets"]["translated-0"] > 25
    with Consumer(
        "translated", bootstrap_servers=clusters.target_address, group_id="readers-1", isolation_level="read_committed"
    ) as reader:
        assert next(iter(reader)).value == b"25"
    assert not [event for event in mirror(*arguments) if event["event"] == "groups"]


def test_records_that_the_source_has_lost(clusters, mirror):
    at = TopicPartition("lossy", 0)
    write(clusters.source_address, "lossy", [b"0", b"1"])
    mirror("--include", "lossy", "--name", "lossy")
    write(clusters.source_address, "lossy", [b"2", b"3", b"4"])
    clusters.source.delete_records({at: 4})
    events = mirror("--include", "lossy", "--name", "lossy")
    assert (
        events[0]["text"]
        == "lossy-0 has deleted its records before 4, but the next offset was 2: it is mirrored from 4 on"
    )
    assert [record[2] for record in read(clusters.target_address, "lossy")] == [b"0", b"1", b"4"]


def test_records_that_the_source_loses_while_they_are_mirrored(clusters):
    at = TopicPartition("losing", 0)
    write(clusters.source_address, "losing", [b"%d" % number for number in range(8)])
    options = options_of(clusters, "--include", "losing", "--name", "losing", "--once")
    notes = []

    class Losing(MirrorEvents):
        def note(self, text):
            notes.append(text)

        def mirroring(self, topic):
            # On a thread of its own, while the mirror waits for it: its first fetch comes later.
            clusters.source.delete_records({at: 6})

    asyncio.run(Mirror(options, Losing()).run(asyncio.Event()))
    assert notes == ["losing-0 has deleted its records before 6, but the next offset was 0: it is mirrored from 6 on"]
    assert [record[2] for record in read(clusters.target_address, "losing")] == [b"6", b"7"]


def test_a_source_that_has_lost_its_end(clusters, mirror):
    """What was mirrored stays, and what comes next is mirrored: nothing is there twice."""
    at, group = TopicPartition("cut", 0), "headrace-mirror.cut"
    write(clusters.source_address, "cut", [b"0", b"1"])
    mirror("--include", "cut", "--name", "cut")
    place = clusters.target.list_group_offsets(group)[at]
    clusters.target.alter_group_offsets(group, {at: place._replace(offset=5)})
    events = mirror("--include", "cut", "--name", "cut")
    assert events[0]["text"] == "cut-0 ends at 2, but the next offset was 5: it is mirrored from 2 on"
    write(clusters.source_address, "cut", [b"2"])
    mirror("--include", "cut", "--name", "cut")
    assert [record[2] for record in read(clusters.target_address, "cut")] == [b"0", b"1", b"2"]


def test_a_target_that_takes_smaller_batches(clusters, mirror):
    clusters.source.create_topic("small", 1, configs={"max.message.bytes": "20000"})
    write(clusters.source_address, "small", [b"%04d" % number * 100 for number in range(1_000)])
    mirror("--include", "small")
    assert [int(r[2][:4]) for r in read(clusters.target_address, "small")] == list(range(1_000))


def test_settings_that_the_target_does_not_take(clusters, mirror, monkeypatch):
    """Its own are taken then, and that is said."""
    clusters.source.create_topic("odd", 2, configs={"retention.ms": "-1"})
    monkeypatch.setattr(topics, "NewTopic", _with_nonsense(topics.NewTopic))
    events = mirror("--include", "odd", "--name", "odd")
    assert events[0]["text"].startswith("odd is created with the target's default settings")
    assert len(clusters.target.describe_topic("odd").partitions) == 2


def _with_nonsense(new_topic):
    return lambda name, count, configs: new_topic(name, count, configs={**configs, "no.such.setting": "1"})


def test_kafkas_own_flags(clusters, tmp_path, capsys):
    write(clusters.source_address, "old", [b"1"])
    source, target = tmp_path / "source.properties", tmp_path / "target.properties"
    source.write_text(
        f"bootstrap.servers={clusters.source_address}\ngroup.id=mm\n"
        "key.deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer\n"
    )
    target.write_text(f"bootstrap.servers={clusters.target_address}\ncompression.type=lz4\nacks=all\n")
    files = ["--consumer.config", str(source), "--producer.config", str(target)]
    flags = ["--whitelist", "old", "--num.streams", "2", "--offset.commit.interval.ms", "500"]
    assert mirror_maker.main([*files, *flags, "--abort.on.send.failure", "true", "--once"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("1 records mirrored in ")
    assert "old -> old (1 partition)" in captured.err.splitlines()
    assert clusters.target.list_group_offsets("headrace-mirror.mm")


@pytest.mark.parametrize("servers", ["here:2", "127.0.0.1:9092"])
def test_brokers_of_the_command_line_come_before_those_of_files(tmp_path, servers):
    file = tmp_path / "elsewhere.properties"
    file.write_text("bootstrap.servers=elsewhere:1\n")
    files = ["--consumer.config", str(file), "--producer.config", str(file), "--include", "x"]
    options = mirror_maker.parser().parse_args([*files, "--source", servers, "--target", servers])
    found = mirror_maker._mirror_options(options)
    configs = (found.source_admin, found.target_admin, found.consumer, found.producer)
    assert {config["bootstrap.servers"] for config in configs} == {servers}


def test_a_name_is_for_one_source(clusters, mirror):
    for name in ("one", "two"):
        write(clusters.source_address, name, [b"x"])
    mirror("--rename", "one=both", "--name", "b")
    failed = mirror("--rename", "two=both", "--name", "b", code=1)
    assert "has filled both from another source" in failed
    assert failed.count("\n") == 1


class Watched(MirrorEvents):
    def __init__(self):
        self.began, self.moves = asyncio.Event(), asyncio.Queue()

    def mirroring(self, topic):
        self.began.set()

    def moved(self, done_offsets, lag_offsets):
        self.moves.put_nowait((done_offsets, lag_offsets))


def options_of(clusters, *arguments):
    ends = ("--source", clusters.source_address, "--target", clusters.target_address)
    return mirror_maker._mirror_options(mirror_maker.parser().parse_args([*ends, *arguments]))


def test_a_second_mirror_of_the_name_takes_over(clusters):
    clusters.source.create_topic("contended", 1)
    options = options_of(clusters, "--include", "contended", "--name", "c")

    async def scenario():
        first, second = (Mirror(options, Watched()) for _ in range(2))
        first_task = asyncio.create_task(first.run(asyncio.Event()))
        await first._events.began.wait()
        stopping = asyncio.Event()
        second_task = asyncio.create_task(second.run(stopping))
        await second._events.began.wait()
        await asyncio.to_thread(write, clusters.source_address, "contended", [b"1"])
        with pytest.raises(MirrorError, match="another mirror with the name 'c' has taken over"):
            await first_task
        assert (await second._events.moves.get())[0] == 1
        stopping.set()
        await second_task
        assert second.state.records == 1

    asyncio.run(scenario())
    assert [record[2] for record in read(clusters.target_address, "contended")] == [b"1"]


def test_new_topics_are_found_while_it_runs(clusters):
    clusters.source.create_topic("first.1", 1)
    arguments = ("--include", "first.*", "--name", "f", "--refresh.topics.interval.ms", "50", "--start", "latest")
    options = options_of(clusters, *arguments)

    async def scenario():
        mirror, stopping = Mirror(options, Watched()), asyncio.Event()
        task = asyncio.create_task(mirror.run(stopping))
        await mirror._events.began.wait()
        # From its first record on, though partitions that were there at the start begin at their ends.
        await asyncio.to_thread(write, clusters.source_address, "first.2", [b"1"])
        assert (await mirror._events.moves.get())[0] == 1
        stopping.set()
        await task

    asyncio.run(scenario())
    assert [record[2] for record in read(clusters.target_address, "first.2")] == [b"1"]


def _failing(method, *, is_done, turn):
    """The method, but at its given turn it fails, before or after it has done its work."""
    calls = 0

    async def failing(*arguments):
        nonlocal calls
        calls += 1
        result = await method(*arguments) if calls != turn or is_done else None
        if calls == turn:
            raise BrokerUnreachable("the cable was pulled")
        return result

    return failing


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (ExactlyOnce, "begin"),
        (ExactlyOnce, "commit"),
        (AsyncProducer, "send_offsets_to_transaction"),
        (AsyncProducer, "send_arrow"),
        (Session, "_poll"),
        (Session, "_store_runs"),
    ],
)
def test_whatever_fails_each_record_is_there_once(clusters, monkeypatch, owner, method, is_done):
    topic = f"faulty-{method}-{is_done}"
    values = [b"%d" % number for number in range(30)]
    write(clusters.source_address, topic, values[:10])
    options = options_of(clusters, "--include", topic, "--name", topic, "--once")
    asyncio.run(Mirror(options).run(asyncio.Event()))
    write(clusters.source_address, topic, values[10:])
    failed = []

    async def scenario():
        mirror = Mirror(options, Watched())
        mirror._events.failed = failed.append
        await mirror.run(asyncio.Event())

    monkeypatch.setattr(owner, method, _failing(getattr(owner, method), is_done=is_done, turn=1))
    asyncio.run(scenario())
    assert [str(error) for error in failed] == ["the cable was pulled"]
    assert [record[2] for record in read(clusters.target_address, topic)] == values


def test_a_record_that_the_target_does_not_take(clusters, mirror):
    clusters.target.create_topic("narrow", 1, configs={"max.message.bytes": "1000"})
    write(clusters.source_address, "narrow", [b"x" * 5_000])
    failed = mirror("--include", "narrow", "--name", "narrow", code=1)
    assert "message_too_large" in failed
    assert failed.count("\n") == 1
    clusters.target.alter_config("topic", "narrow", {"max.message.bytes": "10000"})
    assert mirror("--include", "narrow", "--name", "narrow")[-1]["records"] == 1


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_topic_is_made_anew_while_it_runs(clusters, side):
    topic = f"renewed-{side}"
    write(clusters.source_address, topic, [b"1", b"2"])
    arguments = ("--include", topic, "--name", topic, "--refresh.topics.interval.ms", "50")

    async def scenario():
        mirror, stopping = Mirror(options_of(clusters, *arguments), Watched()), asyncio.Event()
        task = asyncio.create_task(mirror.run(stopping))
        while mirror.state.records < 2:
            await mirror._events.moves.get()
        mirror._events.began.clear()
        await asyncio.to_thread(getattr(clusters, side).delete_topics, [topic], wait=False)
        if side == "target":  # else what is sent meanwhile waits for the topic until its delivery is given up
            await mirror._events.began.wait()
        await asyncio.to_thread(write, clusters.source_address, topic, [b"3"])
        while mirror.state.records < (3 if side == "source" else 5):
            await mirror._events.moves.get()
        stopping.set()
        await task

    asyncio.run(scenario())
    assert [record[2] for record in read(clusters.target_address, topic)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_well(clusters, capsys, monkeypatch, number):
    write(clusters.source_address, f"stopped-{number.name}", [b"1", b"2"])
    monkeypatch.setattr(Mirror, "run", _signalled(Mirror.run, number))
    ends = ["--source", clusters.source_address, "--target", clusters.target_address]
    assert mirror_maker.main([*ends, "--include", f"stopped-{number.name}", "--name", number.name]) == 0
    assert capsys.readouterr().out.startswith("2 records mirrored in ")


def _signalled(run, number):
    """The process gets the signal once something is mirrored."""

    async def signalled(self, stopping):
        def moved(done_offsets, lag_offsets):
            if not stopping.is_set():
                os.kill(os.getpid(), number)

        self._events.moved = moved
        await run(self, stopping)

    return signalled


def test_one_cluster_needs_other_names(clusters, capsys):
    write(clusters.source_address, "self", [b"x"])
    both = ["--source", clusters.source_address, "--target", clusters.source_address, "--once"]
    assert mirror_maker.main([*both, "--include", "self"]) == 1
    assert (
        "source and target are the same cluster: the topic self needs another name at the target"
        in capsys.readouterr().err
    )
    assert mirror_maker.main([*both, "--include", ".*", "--exclude", "[^s].*", "--topic-prefix", "copy."]) == 0
    assert [record[2] for record in read(clusters.source_address, "copy.self")] == [b"x"]


@pytest.mark.parametrize("side", ["--source", "--target"])
def test_a_broker_that_is_not_there(clusters, mirror, side):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        nowhere = f"127.0.0.1:{taken.getsockname()[1]}"
    failed = mirror("--include", ".*", side, nowhere, "--timeout", 500, code=1)
    assert failed.count("\n") == 1
    assert nowhere in failed


def test_nothing_to_mirror(mirror):
    assert "no topic of the source matches" in mirror("--include", "nothing-.*", code=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--source", "a:1", "--target", "b:1"],
        ["--source", "a:1", "--include", "x"],
        ["--source", "a:1", "--target", "b:1", "--include", "("],
        ["--source", "a:1", "--target", "b:1", "--include", "x", "--rename", "y"],
        ["--source", "a:1", "--target", "b:1", "--include", "x", "--name", "a b"],
        ["--source", "a:x", "--target", "b:1", "--include", "x"],
        ["--consumer.config", "/nowhere", "--target", "b:1", "--include", "x"],
    ],
)
def test_wrong_use(arguments, capsys):
    assert mirror_maker.main(arguments) == 2
    assert capsys.readouterr().out == ""
