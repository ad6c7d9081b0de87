"""Finds the records of a batch that a search wants.

Most batches have none. So the text is first looked for in all the bytes of the batch at once, which takes about a
nanosecond per hundred bytes, and only batches that have it are taken apart. A record then counts only if the text is in
the part that the reader has chosen. This is left out if the console masks fields: then a search looks into what a page
would show, and nothing that is hidden can be guessed by searching for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.console.records.batches import RawRecord, body_of, records_of_body
from headrace.console.records.criteria import Criteria, Term
from headrace.console.records.decoding import Decoder
from headrace.console.records.expressions import compiled, is_local
from headrace.protocol.errors import KafkaError
from headrace.protocol.records import BatchHeader

Test = Callable[[RawRecord], bool]


class Matcher:
    """Tests the records of one search.

    :ivar unreadable: how many batches could not be read.
    """

    def __init__(self, criteria: Criteria, decoder: Decoder) -> None:
        self._criteria = criteria
        self._decoder = decoder
        self._is_in: Callable[[bytes], bool] | None = None
        self._tests: list[Test] = [*_range_tests(criteria)]
        self.unreadable = 0
        if criteria.term is not None:
            is_in = _contains(criteria.term)
            is_exact = not criteria.term.is_expression or is_local(criteria.term.text)
            if is_exact and not decoder.masks:
                self._is_in = is_in
            self._tests.append(_term_test(criteria.term, is_in, decoder))
        if criteria.filter is not None:
            needed, holds = criteria.filter.roots, criteria.filter.holds
            self._tests.append(lambda record: holds(_fields(record, decoder, needed)))

    def of_batch(self, partition: int, header: BatchHeader, batch: memoryview, from_offset: int) -> Iterator[RawRecord]:
        """The records of a batch that are wanted, from an offset on, one at a time. Control batches have none."""
        until, from_ms = self._criteria.until_offset, self._criteria.from_ms
        if header.is_control or (until is not None and header.base_offset >= until):
            return
        if from_ms is not None and header.max_timestamp < from_ms:
            return
        try:
            body = body_of(batch)
            if self._is_in is not None and not self._is_in(body):
                return
            for record in records_of_body(partition, header, body, from_offset):
                if all(test(record) for test in self._tests):
                    yield record
        except KafkaError:
            self.unreadable += 1


def _range_tests(criteria: Criteria) -> list[Test]:
    tests: list[Test] = []
    from_ms, until_ms, until = criteria.from_ms, criteria.until_ms, criteria.until_offset
    if from_ms is not None:
        tests.append(lambda record: record.timestamp_ms >= from_ms)
    if until_ms is not None:
        tests.append(lambda record: record.timestamp_ms < until_ms)
    if until is not None:
        tests.append(lambda record: record.offset < until)
    return tests


def _contains(term: Term) -> Callable[[bytes], bool]:
    if term.is_expression:
        return compiled(term.text)
    needle = term.text.encode("utf-8", "replace")
    if term.header and not needle:
        # Any value of the header will do; its name is in the batch.
        needle = term.header.encode("utf-8", "replace")
    return lambda data: needle in data


def _term_test(term: Term, is_in: Callable[[bytes], bool], decoder: Decoder) -> Test:
    searched = decoder.searched

    def in_value(record: RawRecord) -> bool:
        value = searched(record.value)
        return value is not None and is_in(value)

    def in_key(record: RawRecord) -> bool:
        key = searched(record.key)
        return key is not None and is_in(key)

    def in_header(record: RawRecord) -> bool:
        for name, value in record.headers:
            if (not term.header or name == term.header) and not decoder.masks.hides(name):
                shown = searched(value)
                if not term.text or (shown is not None and is_in(shown)):
                    return True
        return False

    tests: dict[str, Test] = {
        "value": in_value,
        "key": in_key,
        "key or value": lambda record: in_key(record) or in_value(record),
        "header": in_header,
    }
    return tests[term.target]


def _fields(record: RawRecord, decoder: Decoder, needed: frozenset[str]) -> Mapping[str, Any]:
    """The parts of a record that a filter may ask for. Documents are made only if the filter needs them."""
    found: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "size": record.size_bytes,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        if name in needed:
            found[name] = field_value(data, decoder)
    if "headers" in needed:
        visible = {name: value for name, value in record.headers if not decoder.masks.hides(name)}
        found["headers"] = {name: field_value(value, decoder) for name, value in visible.items()}
    return found


def field_value(data: bytes | None, decoder: Decoder) -> Any:
    """A document, or a text; None if the bytes are neither, or hidden."""
    if data is None:
        return None
    document = decoder.document(data)
    if document is not None:
        return document.content
    shown = decoder.searched(data)
    try:
        return None if shown is None else shown.decode("utf-8")
    except UnicodeDecodeError:
        return None
