"""Missing columns: how many records in a row must lack a column, by the share of records that had it before."""

from __future__ import annotations

import json

import pytest

from headrace.pipeline.serving.catalog_tables.schema_changes import Place
from headrace.pipeline.source_watch.field_counts import FieldCounts, Fields


class Topic:
    """Counts records of one topic, each given as the columns that have a value."""

    def __init__(self, *columns: str, is_exact: bool = False) -> None:
        self.columns, self.next_offset = columns, 0
        self.counts = FieldCounts("orders", "shop.orders", is_exact)

    def add(self, count: int, *having: str, null: tuple[str, ...] = (), new: tuple[str, ...] = ()) -> None:
        fields = Fields({name: name in having for name in self.columns}, frozenset((*having, *null)), frozenset(new))
        places = [Place(0, self.next_offset + at, 1000 * (self.next_offset + at)) for at in range(count)]
        self.next_offset += count
        self.counts.add((place, fields) for place in places)

    def missing(self) -> list[str]:
        return [each.column for each in self.counts.changes() if each.is_missing]


def test_a_column_that_all_records_had_is_missing_after_a_hundred_records_without_it():
    topic = Topic("id", "price")
    topic.add(500, "id", "price")
    topic.add(99, "id")
    assert topic.missing() == []
    topic.add(1, "id")
    (change,) = topic.counts.changes()
    assert (change.column, change.records, change.share) == ("price", 100, 1.0)
    assert change.since == Place(0, 500, 500_000), "the first record that lacks it"
    assert change.text == (
        "source orders: the column price has no value in the last 100 records of topic shop.orders, since offset 500 "
        "of partition 0 (1970-01-01T00:08:20Z); 100% of the records before had one. It is NULL there. If the field "
        "has another name now, or is gone, change the schema and the query, and run 'headrace views apply', which "
        "makes a new version"
    )


def test_the_change_is_over_when_a_record_has_the_column_again():
    topic = Topic("price")
    topic.add(500, "price")
    topic.add(200)
    assert topic.missing() == ["price"]
    topic.add(1, "price")
    assert topic.missing() == []


@pytest.mark.parametrize(("every", "enough"), [(2, 100), (100, 2_000), (1_000, 20_000)])
def test_a_rare_column_is_not_missing_before_its_absence_is_surprising(every, enough):
    topic = Topic("coupon")
    for _ in range(20_000 // every):
        topic.add(1, "coupon")
        topic.add(every - 1)
    assert topic.missing() == []
    topic.add(enough * 9 // 10 - every)
    assert topic.missing() == []
    topic.add(enough // 5 + every)
    assert topic.missing() == ["coupon"]


def test_a_column_that_the_first_records_had_by_chance_is_not_missing_at_once():
    topic = Topic("coupon")
    topic.add(1, "coupon")
    topic.add(1_500)
    assert topic.missing() == []


def test_a_column_that_no_record_ever_named_is_missing_after_a_thousand():
    topic = Topic("id", "total")
    topic.add(999, "id")
    assert topic.missing() == []
    topic.add(1, "id")
    (change,) = topic.counts.changes()
    assert (change.column, change.share) == ("total", 0.0)
    assert "no record ever had one" in change.text


def test_a_column_that_is_always_null_is_optional():
    topic = Topic("id", "deleted_at")
    topic.add(3_000, "id", null=("deleted_at",))
    assert topic.missing() == []


def test_what_was_long_ago_counts_less():
    """Once all records had the column, then one in a hundred: it is a rare column now."""
    topic = Topic("coupon")
    topic.add(10_000, "coupon")
    for _ in range(2_000):
        topic.add(1, "coupon")
        topic.add(99)
    topic.add(900)
    assert topic.missing() == []


def test_ten_records_are_enough_if_their_schemas_are_known():
    topic = Topic("id", "price", "total", is_exact=True)
    topic.add(1, "id", "price")
    topic.add(9, "id")
    assert topic.missing() == ["total"]
    topic.add(1, "id")
    assert topic.missing() == ["price", "total"]


def test_new_fields_are_named_once_and_only_so_many():
    topic = Topic("id")
    topic.add(5, "id")
    topic.add(3, "id", new=("discount",))
    (change,) = topic.counts.changes()
    assert (change.kind, change.column, change.since.offset) == ("new", "discount", 5)
    assert change.text == (
        "source orders: records of topic shop.orders have a field discount since offset 5 of partition 0 "
        "(1970-01-01T00:00:05Z), which the schema does not name: add a column if a query needs it"
    )
    topic.add(1, "id", new=tuple(f"key{number}" for number in range(1_000)))
    assert len(topic.counts.changes()) == 20


def test_counts_continue_after_a_restart():
    before = Topic("id", "price")
    before.add(500, "id", "price", new=("discount",))
    before.add(60, "id")
    after = Topic("id", "price")
    after.counts.load(json.loads(json.dumps(before.counts.as_dict())))
    assert after.counts == before.counts
    after.next_offset = before.next_offset
    after.add(40, "id")
    assert [each.column for each in after.counts.changes()] == ["price", "discount"]
    assert after.counts.changes()[0].since.offset == 500
