"""The manifests of an archive, without files and without Spark."""

from __future__ import annotations

import json

import pytest

from headrace.pipeline.archive.compaction import plan
from headrace.pipeline.archive.manifest import ArchiveDamaged, ArchivedFile, History, Manifest
from headrace.pipeline.progress.data_loss import DataLost

PATH = "topic=clicks/day=2026-11-16"


def manifest(number: int, ranges, *files: ArchivedFile, topic_id: str | None = "id") -> Manifest:
    return Manifest(number, "clicks", topic_id, ranges, files)


def file(number: int, ranges, rows: int = 10) -> ArchivedFile:
    return ArchivedFile(f"{PATH}/{number:010d}-abcdef01-00000.parquet", rows, ranges)


FIRST = manifest(1, {0: (5, 20), 1: (0, 0)}, file(1, {0: (5, 19)}))
SECOND = manifest(2, {0: (20, 30), 1: (0, 7)}, file(2, {0: (20, 30), 1: (0, 7)}))


def test_a_history_covers_one_range_of_each_partition():
    history = History("clicks").followed_by(FIRST).followed_by(SECOND)
    assert (history.starts, history.ends) == ({0: 5, 1: 0}, {0: 30, 1: 7})
    assert (history.last_number, history.topic_id) == (2, "id")
    assert sum(file.rows for manifest in history.manifests for file in manifest.files) == 20
    assert (History("clicks").starts, History("clicks").ends, History("clicks").topic_id) == ({}, {}, None)


def test_a_manifest_is_the_same_after_a_trip_through_json():
    assert Manifest.from_json(SECOND.to_json(), "0000000002.json") == SECOND


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"number": 1, "files": 3}', FIRST.to_json()[:-20]])
def test_what_is_no_manifest_is_told_by_name(text):
    with pytest.raises(ArchiveDamaged, match=r"0000000001\.json"):
        Manifest.from_json(text, "0000000001.json")


@pytest.mark.parametrize(
    "wrong",
    [
        manifest(3, {0: (20, 30)}),
        manifest(1, {0: (20, 30)}),
        manifest(2, {0: (19, 30)}),
        manifest(2, {0: (21, 30)}),
        Manifest(2, "orders", "id", {0: (20, 30)}, ()),
    ],
)
def test_a_manifest_that_does_not_go_on_where_the_last_one_ended_is_refused(wrong):
    history = History("clicks").followed_by(FIRST)
    with pytest.raises(ArchiveDamaged):
        history.followed_by(wrong)
    assert issubclass(ArchiveDamaged, DataLost)


def test_only_files_that_may_have_what_is_wanted_are_read():
    history = History("clicks").followed_by(FIRST).followed_by(SECOND)
    one, two = FIRST.files[0], SECOND.files[0]
    assert history.files({}, {0: 30, 1: 7}) == [one, two]
    assert history.files({0: 19}, {0: 30}) == [two]
    assert history.files({0: 18}, {0: 20}) == [one]
    assert history.files({0: 19}, {0: 20}) == []
    assert history.files({}, {1: 7}) == [two]
    assert history.files({}, {}) == []


def test_a_file_knows_whether_it_has_more_than_wanted():
    two = SECOND.files[0]
    assert two.crosses(0, 21, 30)
    assert two.crosses(0, 20, 29)
    assert not two.crosses(0, 20, 30)
    assert not two.crosses(5, 20, 30)


def test_orphans_are_files_that_the_manifest_of_their_number_does_not_list():
    history = History("clicks").followed_by(FIRST)
    assert not history.is_orphan(FIRST.files[0].path)
    assert history.is_orphan(f"{PATH}/0000000001-abcdef01-00001.parquet")
    assert history.is_orphan("_headrace/clicks/staging/0000000001-77aa02c1")
    # The writer of these files may still be at work.
    assert not history.is_orphan(f"{PATH}/0000000002-abcdef01-00000.parquet")
    assert not history.is_orphan("_headrace/clicks/staging/0000000002-77aa02c1")
    # And this is not ours.
    assert not history.is_orphan(f"{PATH}/notes.txt")


# ---------------------------------------------------------------------------------------------------------- compaction


def compacted(number: int, file_: ArchivedFile, *replaces: ArchivedFile) -> Manifest:
    return Manifest(number, "clicks", "id", {}, (file_,), tuple(one.path for one in replaces), 1_000)


def test_files_that_were_replaced_are_not_read():
    old, more, new = file(1, {0: (5, 19)}), file(2, {0: (20, 30), 1: (0, 7)}), file(3, {0: (5, 30), 1: (0, 7)}, 20)
    history = History("clicks").followed_by(FIRST).followed_by(SECOND).followed_by(compacted(3, new, old, more))
    assert history.files({}, {0: 30, 1: 7}) == [new]
    assert (history.starts, history.ends, history.topic_id) == ({0: 5, 1: 0}, {0: 30, 1: 7}, "id")
    assert history.replaced == {old.path: 1_000, more.path: 1_000}
    assert not any(history.is_orphan(each.path) for each in (old, more, new)), "they are deleted by their time"
    after = manifest(4, {0: (30, 40)}, file(4, {0: (30, 40)}))
    assert len(history.followed_by(after).files({}, {0: 40})) == 2


def test_a_compaction_is_the_same_after_a_trip_through_json_and_older_versions_refuse_it():
    made = compacted(3, file(3, {0: (5, 30)}), file(1, {0: (5, 19)}))
    assert Manifest.from_json(made.to_json(), "0000000003.json") == made
    assert '"ranges"' in made.to_json()
    assert not {"files", "ranges"} & set(json.loads(made.to_json())), "older versions need both"


def test_a_compaction_of_files_that_are_not_there_is_refused():
    history = History("clicks").followed_by(FIRST)
    with pytest.raises(ArchiveDamaged, match="which no manifest lists"):
        history.followed_by(compacted(2, file(2, {0: (5, 19)}), file(9, {0: (5, 19)})))
    once = history.followed_by(compacted(2, file(2, {0: (5, 19)}), file(1, {0: (5, 19)})))
    with pytest.raises(ArchiveDamaged, match="which no manifest lists"):
        once.followed_by(compacted(3, file(3, {0: (5, 19)}), file(1, {0: (5, 19)})))


def history_of(*rows: int, day: str = "day=2026-11-16") -> History:
    """One manifest per file."""
    history, start = History("clicks"), 0
    for number, count in enumerate(rows, 1):
        ranges = {0: (start, start + count)}
        one = ArchivedFile(f"topic=clicks/{day}/{number:010d}-abcdef01-00000.parquet", count, ranges)
        history, start = history.followed_by(manifest(number, ranges, one)), start + count
    return history


@pytest.mark.parametrize(
    ("rows", "planned"),
    [
        ([], []),
        ([10] * 7, []),
        ([10] * 8, [80]),
        ([10] * 12, [120]),
        ([10] * 7 + [100] * 7, []),  # of two sizes
        ([99] * 4 + [10] * 4 + [100_000] * 8, [800_000, 436]),
        ([600_000] * 20, []),  # large enough
    ],
)
def test_many_small_files_of_a_day_and_a_size_are_compacted(rows, planned):
    assert sorted(group.rows for group in plan(history_of(*rows))) == sorted(planned)


def test_a_record_is_written_again_a_few_times_only():
    """A year of appends of the same size, each of which compacts what there is."""
    live: list[tuple[int, int]] = []  # records, how often they were written
    most = 0
    for _ in range(2_000):
        live.append((1_000, 1))
        for group in plan(history_of(*(rows for rows, _ in live))):
            numbers = {int(file.path.rpartition("/")[2][:10]) - 1 for file in group.files}
            times = 1 + max(live[at][1] for at in numbers)
            live = [one for at, one in enumerate(live) if at not in numbers] + [(group.rows, times)]
            most = max(most, times)
    assert most <= 5
    assert len(live) <= 8 * 3 + 4
