"""``keyed_batch.py`` builds the same bytes as ``batch_building.py``."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.batch_building import build_batch
from headrace.protocol.keyed_batch import build_keyed_batch
from headrace.protocol.record_body import Record

contents = st.binary(max_size=40) | st.integers(8190, 8200).map(bytes)  # where a length takes a byte more
records = st.lists(st.tuples(contents, st.none() | contents), min_size=1, max_size=70)


@settings(deadline=None)
@given(records, st.integers(0, 2**42), st.booleans())
def test_the_bytes_of_the_general_way(rows, now_ms, is_transactional):
    fields = {"producer_id": 7, "producer_epoch": 3, "is_transactional": is_transactional}
    general = build_batch([Record(at, now_ms, key, value, ()) for at, (key, value) in enumerate(rows)], **fields)
    assert build_keyed_batch(rows, timestamp_ms=now_ms, **fields) == general
