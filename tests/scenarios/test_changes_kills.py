"""Published views and change feeds whose runner and broker are killed with ``kill -9`` at random points.

At the end the table that a consumer of committed records builds from the topic, and the table that a reader of the
change feed has, must be the view. The reader checks every change as it comes. ``HEADRACE_SOAK`` is the number of kills,
and ``HEADRACE_SEED`` repeats their points. A soak also kills the database, and the schema registry of an Avro topic.
"""

import io
import json
import random
import time

import pytest
from clicks_truth import Clicks, Truth, make_topic
from feed_reader import FeedReader
from lasting_server import Server
from views_harness import IS_SOAK, KILLS, SEED, TIMEOUT_S
from views_process import KAPPA, LAMBDA, VIEWS, ViewsProject

from headrace import Consumer, TopicPartition
from headrace.pipeline.decoding.registry import SchemaRegistry
from headrace.testing.ports import free_port
from headrace.testing.registry_process import RegistryProcess

only_in_soaks = pytest.mark.skipif(not IS_SOAK, reason="takes many minutes: script/soak runs it")
pytestmark = [pytest.mark.timeout(TIMEOUT_S), pytest.mark.xdist_group("views-1")]


def table_of(address, topic):
    """The rows that committed records of the topic make, by their keys."""
    rows = {}
    with Consumer(
        bootstrap_servers=address, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        places = [TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(*places)
        consumer.assign(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            for record in consumer.poll(500):
                rows[record.key] = record.value
    return sorted((value for value in rows.values() if value is not None), key=bytes)


def in_order(rows):
    return sorted(json.dumps(row, separators=(",", ":")).encode() for row in rows)


def shown(project, view):
    answer = project.ask(view)
    return in_order(dict(zip(answer.columns, row, strict=True)) for row in answer.rows)


def from_avro(values, registry):
    """The values of an Avro topic as those of a JSON topic."""
    from fastavro import schemaless_reader

    known, made = SchemaRegistry(registry.url), []
    for value in values:
        schema = json.loads(known.schema(int.from_bytes(value[1:5], "big")).text)
        made.append(schemaless_reader(io.BytesIO(value[5:]), schema))
    return in_order(made)


def test_the_topic_and_the_feed_are_the_view_whatever_is_killed(tmp_path):
    run_kills(tmp_path)


@only_in_soaks
def test_the_database_is_killed_too(tmp_path, mortal_postgresql):
    run_kills(tmp_path, url=mortal_postgresql.url, others=[mortal_postgresql])


@only_in_soaks
def test_the_registry_of_an_avro_topic_is_killed_too(tmp_path):
    run_kills(tmp_path, is_avro=True)


def run_kills(tmp_path, *, url="sqlite:///views.db", others=(), is_avro=False):
    """
    :param others: further servers that are killed and started again.
    :param is_avro: publish the Lambda view, whose query stays, as Avro, and kill its registry too.
    """
    print(f"HEADRACE_SEED={SEED}")  # noqa: T201  shown if the test fails
    pick, port, others = random.Random(SEED), free_port(), list(others)
    server = Server(tmp_path / "broker")
    make_topic(server.address)
    clicks = Clicks(server.address, random.Random(SEED + 1))
    project = ViewsProject(tmp_path / "project", server.address, url=url)
    registry = RegistryProcess(server.address, tmp_path, "--listen", f"127.0.0.1:{free_port()}")
    if is_avro:
        others.append(registry.start())
    for view in VIEWS:
        file = project.folder / "views" / f"{view}.toml"
        how = f'format = "avro"\nregistry = "{registry.url}"\n' if is_avro and view == LAMBDA else ""
        file.write_text(f'{file.read_text()}\n[publish]\ntopic = "{view}-changes"\n{how}')

    def published(view):
        values = table_of(server.address, f"{view}-changes")
        return from_avro(values, registry) if is_avro and view == LAMBDA else values

    readers = {view: FeedReader(port, view) for view in VIEWS}
    try:
        clicks.write(300)
        project.apply()
        project.start("--serve", f"127.0.0.1:{port}")
        clicks.start()
        project.serves()
        for reader in readers.values():
            reader.start()
        project.waits_until(lambda: all(each.changes for each in readers.values()), "readers get no changes")
        _kill_again_and_again(project, server, others, port, pick)
        project.waits_until(lambda: project.serving(KAPPA) == 2, "the changed query does not serve")
        clicks.stop()
        truth = Truth(server.address)
        for view in VIEWS:
            wanted = {"clicks": truth.next_offsets}
            project.waits_until(lambda view=view, wanted=wanted: _offsets(project, view) == wanted, f"{view} is late")
            project.waits_until(
                lambda view=view: published(view) == shown(project, view),
                f"the topic of {view} is not the view",
            )
            reader = readers[view]
            project.waits_until(
                lambda view=view, reader=reader: in_order(reader.rows() or ()) == shown(project, view),
                f"the feed of {view} is not the view",
            )
            assert reader.error is None
        assert readers[LAMBDA].snapshots == 1, "a reader of unchanged columns resumes without a snapshot"
        assert readers[LAMBDA].connections > 1
        assert project.terminate() == 0, project.log()
    finally:
        for reader in readers.values():
            reader.stop()
        project.close()
        registry.kill()
        clicks.close()
        server.close()


def _kill_again_and_again(project, server, others, port, pick):
    for number in range(KILLS):
        _comes_further(project, pick)
        if number == KILLS // 2:
            project.change_the_kappa_query()
            project.apply()
        project.kill()
        project.start("--serve", f"127.0.0.1:{port}")
        if not others or number % 3 == 0:
            _comes_further(project, pick)
            server.kill()
            server.start()
        for each in others:
            _comes_further(project, pick)
            each.kill()
            time.sleep(pick.random() * 2)
            each.start()


def _comes_further(project, pick):
    view = pick.choice(VIEWS)
    goal = project.counted(view) + pick.randrange(1, 1000)
    project.waits_until(lambda: project.counted(view) >= goal, f"{view} does not go on")


def _offsets(project, view):
    return {topic: dict(ends) for topic, ends in project.ask(view).as_of[0].offsets.items()}
