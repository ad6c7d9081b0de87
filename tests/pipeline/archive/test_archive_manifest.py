"""The manifests of an archive, without files and without Spark."""

from __future__ import annotations

import pytest

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
    # Whoever writes these may still be at it.
    assert not history.is_orphan(f"{PATH}/0000000002-abcdef01-00000.parquet")
    assert not history.is_orphan("_headrace/clicks/staging/0000000002-77aa02c1")
    # And this is not ours.
    assert not history.is_orphan(f"{PATH}/notes.txt")
