"""The pages and actions about groups: on a real broker, with groups of consumers and groups that only commit."""

from __future__ import annotations

import re

import pytest
from console_harness import Elements

from headrace import Admin, Consumer, Producer
from headrace.client.types import TopicPartition
from headrace.console.cluster.offset_resets import Place, Reset, new_offset, read_reset

_FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def admin(broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("bills", num_partitions=2)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for partition in (0, 1):
                for number in range(10):
                    producer.send("bills", value=b"x", partition=partition, timestamp_ms=_FIRST_MS + 60_000 * number)
        yield admin


@pytest.fixture
def billing(admin):
    """A group that has committed 4 of the first partition, and nothing of the second."""
    admin.alter_group_offsets("billing", {TopicPartition("bills", 0): 4})
    yield "billing"
    admin.delete_group("billing")


def committed(admin, group: str = "billing") -> dict[int, int]:
    return {at.partition: found.offset for at, found in admin.list_group_offsets(group).items()}


async def test_groups_are_listed_with_their_lag(console, admin, billing):
    (row,) = (await console.json("/api/groups?q=bill&sort=lag&order=desc"))["groups"]["rows"]
    assert (row["name"], row["state"], row["members"], row["lag"]) == ("billing", "Empty", 0, 6)
    links = [each["href"] for each in Elements(await console.page("/groups")).named("a")]
    assert "/groups/billing" in links
    await console.services.history.sampler.sample()
    (row,) = (await console.json("/api/groups?q=billing"))["groups"]["rows"]
    assert row["lag"] == 6


async def test_a_group_shows_its_lag_also_in_time(console, billing):
    (row,) = (await console.json("/api/groups/billing"))["partitions"]
    assert (row["committed"], row["end"], row["lag"], row["time_lag_ms"]) == (4, 10, 6, None)
    (row,) = (await console.json("/api/groups/billing?times=true"))["partitions"]
    assert row["next_time_ms"] == _FIRST_MS + 4 * 60_000
    now_ms = console.services.clock.wall_ms()
    assert 0 <= now_ms - _FIRST_MS - 4 * 60_000 - row["time_lag_ms"] < 60_000
    assert "2023-11-14 22:17:20.000 UTC" in await console.page("/groups/billing?times=true")


async def test_a_group_shows_its_members_and_lines(console, admin, broker):
    with Consumer("bills", bootstrap_servers=broker.bootstrap_servers, group_id="live", client_id="reader-1") as one:
        while not one.assignment():
            one.poll(100)
        one.commit({TopicPartition("bills", 1): 10})
        await console.services.history.sampler.sample()
        found = await console.json("/api/groups/live")
        (member,) = found["members"]
        assert (member["client_id"], member["partitions"], found["is_active"]) == ("reader-1", 2, True)
        rows = {row["partition"]: row for row in found["partitions"]}
        assert (rows[1]["lag"], rows[1]["time_lag_ms"], rows[0]["member"]) == (0, 0, "reader-1")
        assert found["lines"][1]["points"][-1]["value"] == 0
        assert "<svg" in await console.page("/groups/live")
        refused = await console.submit("reset-offsets", group="live", to="earliest")
        assert (refused.status_code, "non_empty_group" in refused.text) == (409, True)
        assert (await console.submit("delete-group", group="live")).status_code == 409
        shown = await console.submit("remove-member", group="live", member=member["member_id"])
        assert "loses its partitions" in shown.text
        done = await console.submit("remove-member", step="run", group="live", member=member["member_id"])
        assert done.headers["location"] == "/groups/live"
        assert admin.describe_group("live").members == ()


async def test_a_missing_group_is_a_clear_error(console):
    assert (await console.json("/api/groups/missing", 404))["error"] == "group_id_not_found"
    answer = await console.submit("remove-member", group="missing", member="m")
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("way", "value", "expected"),
    [
        ("earliest", "", {0: 0, 1: 0}),
        ("latest", "", {0: 10, 1: 10}),
        ("current", "", {0: 4, 1: 10}),
        ("offset", "7", {0: 7, 1: 7}),
        ("datetime", "2023-11-14T22:16:20", {0: 3, 1: 3}),
        ("duration", "P1D", {0: 10, 1: 10}),
    ],
)
async def test_offsets_are_reset_as_the_preview_says(console, admin, billing, way, value, expected):
    fields = {"group": "billing", "topic": "bills", "to": way, "value": value}
    asked = await console.submit("reset-offsets", **fields)
    shown = re.findall(r"<tr>" + r"<td>([^<]*)</td>" * 6, asked.text)
    assert {int(row[1]): int(row[3]) for row in shown} == expected
    assert [row[2] for row in shown] == ["4", "–"]
    assert committed(admin) == {0: 4}
    done = await console.submit("reset-offsets", step="run", **fields)
    assert done.headers["location"] == "/groups/billing"
    assert committed(admin) == expected


async def test_an_offset_is_shifted_and_stays_in_the_partition(console, admin, billing):
    asked = await console.submit("reset-offsets", group="billing", to="shift", value="-9")
    assert "-5 is outside of the partition" in asked.text
    assert "--all-topics --shift-by=-9 --execute" in asked.text
    assert (await console.call("reset-offsets", group="billing", to="shift", value="-3")).status_code == 200
    assert committed(admin) == {0: 1}
    wrong = await console.submit("reset-offsets", group="billing", topic="bills", to="shift", value="1")
    assert (wrong.status_code, "no committed offset to shift" in wrong.text) == (422, True)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"to": "offset"}, "give an offset"),
        ({"to": "offset", "value": "-1"}, "is not an offset"),
        ({"to": "earliest", "value": "5"}, "takes no value"),
        ({"to": "duration", "value": "soon"}, "ISO 8601"),
        ({"to": "datetime", "value": "2023-11-14"}, "no time of day"),
        ({"to": "earliest", "partitions": "0"}, "give the topic"),
        ({"to": "earliest", "topic": "bills", "partitions": "7"}, "has no partition 7"),
        ({"to": "earliest", "topic": "bills", "partitions": "0,0"}, "given twice"),
    ],
)
async def test_a_wrong_reset_changes_nothing(console, admin, billing, fields, reason):
    answer = await console.call("reset-offsets", group="billing", **fields)
    assert answer.status_code == 422
    assert reason in answer.text
    assert committed(admin) == {0: 4}


def test_a_time_behind_the_last_record_is_the_end():
    place = Place(2, 9, 5)
    assert new_offset(Reset("datetime", 1), place).after == 9
    assert new_offset(Reset("offset", 1), place).after == 2
    assert read_reset("duration", "PT1H", 3_600_500).number == 500


async def test_offsets_of_a_topic_and_the_group_are_deleted(console, admin, billing):
    admin.create_topic("bills-2")
    admin.alter_group_offsets("billing", {TopicPartition("bills-2", 0): 0})
    fields = {"group": "billing", "topic": "bills"}
    assert "auto.offset.reset" in (await console.submit("delete-group-offsets", **fields)).text
    await console.submit("delete-group-offsets", step="run", typed="bills", **fields)
    assert [at.topic for at in admin.list_group_offsets("billing")] == ["bills-2"]
    gone = await console.submit("delete-group-offsets", **fields)
    assert "committed no such offsets" in gone.text
    admin.alter_group_offsets("short", {TopicPartition("bills", 0): 1})
    assert "committed offsets of 1 partitions" in (await console.submit("delete-group", group="short")).text
    assert (await console.submit("delete-group", step="run", typed="short", group="short")).is_redirect
    assert "short" not in [group.group_id for group in admin.list_groups()]
