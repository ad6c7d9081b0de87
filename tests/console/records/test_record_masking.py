"""Masks: what they hide is in no page, no answer, no search, no tail and no download."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console.records.decoding import Decoder
from headrace.console.records.masking import Masks

SECRET = "4111222233334444"
VALUES = {
    "plain": json.dumps({"card": SECRET, "user": "ann"}).encode(),
    "other case": json.dumps({"CARD": SECRET, "user": "ann"}).encode(),
    "nested": json.dumps({"a": [{"card": {"number": SECRET}}], "user": "ann"}).encode(),
    "escaped name": b'{"\\u0063ard": "' + SECRET.encode() + b'", "user": "ann"}',
    "json in json": json.dumps({"inner": json.dumps({"card": SECRET}), "user": "ann"}).encode(),
    "damaged": b'{"card": "' + SECRET.encode() + b'", ',
    "damaged and escaped": b'{"\\u0063ard": "' + SECRET.encode(),
    "as text": b"card=" + SECRET.encode(),
    "framed": b"\x00\x00\x00\x00\x07\x20" + SECRET.encode(),
    "no utf-8": b"\xff" + SECRET.encode(),
    "too large": json.dumps({"pad": "x" * 3_000_000, "card": SECRET}).encode(),
    "too deep": (b'{"a":' * 150) + b'{"card":"' + SECRET.encode() + b'"}' + b"}" * 150,
    "utf-8 with a mark": b"\xef\xbb\xbf" + json.dumps({"card": SECRET}).encode(),
    "twice": b'{"card": 1, "card": "' + SECRET.encode() + b'"}',
    "a text in json": json.dumps("card " + SECRET).encode(),
}


@pytest.fixture(scope="module")
def topic(admin, producer) -> str:
    admin.create_topic("masked", configs={"max.message.bytes": 5_000_000})
    for value in VALUES.values():
        producer.send(
            "masked", key=value[:1_000_000], value=value, headers={"card": SECRET.encode(), "in": value[:500]}
        )
    producer.flush()
    return "masked"


@pytest.fixture
async def masked(open_console):
    return await open_console(masks=("card",))


async def test_no_page_shows_what_is_masked(masked, topic):
    paths = [f"/topics/{topic}/records?start=oldest&value_format={each}" for each in ("auto", "json", "text", "hex")]
    paths += [f"/topics/{topic}/records/0/{offset}?value_format=text" for offset in range(len(VALUES))]
    paths += [f"/topics/{topic}/search?go=true&text=ann", f"/topics/{topic}/search?go=true"]
    paths += [f"/topics/{topic}/tail?positions=0:0"]
    hex_secret = SECRET.encode().hex(" ")
    for path in paths:
        for text in (await masked.page(path), json.dumps(await masked.json(f"/api{path}"))):
            assert SECRET not in text, path
            assert SECRET[:6] not in text, path
            assert hex_secret[:11] not in text, path


async def test_no_download_has_what_is_masked(masked, topic):
    for kind in ("json", "csv"):
        answer = await masked.get(f"/topics/{topic}/search/download?as={kind}")
        assert answer.status_code == 200
        assert SECRET not in answer.text
        assert "ann" in answer.text
    for offset in range(len(VALUES)):
        for part in ("key", "value"):
            answer = await masked.get(f"/topics/{topic}/records/0/{offset}/download?part={part}")
            assert answer.status_code in (200, 404)
            assert SECRET not in answer.text


@pytest.mark.parametrize(
    "query",
    [
        f"text={SECRET}",
        f"text={SECRET[:4]}&inside=key",
        "text=4[0-9]{15}&expression=true",
        f"text={SECRET}&inside=header",
        f"filter=value.card = '{SECRET}'",
        "filter=value.card startswith '4'",
        f"filter=headers.card = '{SECRET}' or headers.in contains '{SECRET}'",
        f"filter=key contains '{SECRET}' or value contains '{SECRET}'",
    ],
)
async def test_no_search_finds_what_is_masked(masked, topic, query):
    found = await masked.json(f"/api/topics/{topic}/search?go=true&{query}")
    assert (found["state"], found["found"]) == ("complete", 0)


async def test_what_is_not_masked_is_found(masked, console, topic):
    found = await masked.json(f"/api/topics/{topic}/search?go=true&filter=value.user = 'ann'")
    assert found["found"] == 5
    assert (await console.json(f"/api/topics/{topic}/search?go=true&text={SECRET}"))["found"] == len(VALUES)


async def test_the_audit_log_hides_masked_fields_of_records(masked, new_topic):
    topic = new_topic()
    await masked.call("produce-record", topic=topic, value=json.dumps({"card": SECRET, "user": "eve"}), key="card=1")
    log = json.dumps(masked.audit_lines())
    assert SECRET not in log
    assert "eve" in log


NAMES = st.sampled_from(["card", "Card", "user", "x"])
DOCUMENTS = st.recursive(
    st.text(max_size=5) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(NAMES, inner, max_size=3)
        | inner.map(lambda each: json.dumps(each))
    ),
    max_leaves=12,
)


@given(DOCUMENTS, st.lists(NAMES, max_size=3))
def test_a_masked_field_is_hidden_wherever_it_is(document, path):
    document = {"card": SECRET, "rest": document}
    for name in path:
        document = [{name: document}]
    decoder = Decoder(Masks(["card"]))
    data = json.dumps(document).encode()
    for wanted in ("auto", "json", "text", "hex"):
        assert SECRET not in decoder.show(data, wanted).text
    assert SECRET.encode() not in decoder.searched(data)
    assert SECRET not in decoder.brief(data, 300)
