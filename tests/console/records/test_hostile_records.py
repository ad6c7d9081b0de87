"""Records that try to break a page: markup, bytes that are no text, deep JSON, large values and many headers."""

from __future__ import annotations

import json

import pytest
from console_harness import Elements

from headrace.console.records.decoding import Decoder, harmless
from headrace.console.records.masking import Masks

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{7*7}}{% raw %}</pre></table>"
DEEP = "[" * 100_000
HOSTILE = {
    "script": SCRIPT.encode(),
    "script in json": json.dumps({SCRIPT: SCRIPT, "list": [SCRIPT]}).encode(),
    "no utf-8": b"\xff\xfe\x00<script>alert(1)</script>",
    "cut utf-8": "ä".encode() * 6_000 + b"\xc3",
    "deep json": DEEP.encode(),
    "deep json that ends": (b"[" * 900) + (b"]" * 900),
    "large": b"<b>" * 3_000_000,
    "large json": json.dumps({"a": "x" * 3_000_000}).encode(),
    "wide json": json.dumps({str(number): number for number in range(50_000)}).encode(),
    "a long number": b'{"n": ' + b"9" * 10_000 + b"}",
    "not a number": b'{"n": NaN, "m": -Infinity, "l": 1e999}',
    "half a surrogate": b'{"a": "\\ud800", "\\udfff": 1}',
    "turned text": "safe\u202eevil\u2066\u200b".encode(),
    "terminal": b"\x1b[2J\x07\x00text",
    "closing": b"</pre></td></table></body></html>",
    "empty": b"",
    "framed": b"\x00\x00\x00\x00\x01<script>",
}


@pytest.fixture(scope="module")
def topic(admin, producer) -> str:
    admin.create_topic("hostile", configs={"max.message.bytes": 20_000_000})
    for value in HOSTILE.values():
        bomb = [("<i>name" + "n" * 2_000, value[:5_000])] * 300
        producer.send("hostile", key=value[:100_000], value=value, headers=bomb)
    producer.flush()
    return "hostile"


def check_harmless(html):
    page = Elements(html)
    assert [each.get("src") for each in page.named("script")] == ["/static/console.js"]
    assert not page.named("img") + page.named("i") + page.named("b")
    assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "49" not in "".join(page.texts[:40])
    assert "\x00" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html


@pytest.mark.parametrize("chosen", ["auto", "json", "text", "hex", "registry"])
async def test_lists_of_hostile_records_are_harmless_and_small(console, topic, chosen):
    path = f"/topics/{topic}/records?start=oldest&value_format={chosen}&key_format={chosen}"
    html = await console.page(path)
    check_harmless(html)
    assert len(html) < 400_000
    found = await console.json(f"/api{path}")
    assert len(found["records"]) == len(HOSTILE)
    assert all(row["header_count"] == 300 and len(row["headers"]) == 100 for row in found["records"])


@pytest.mark.parametrize("offset", range(len(HOSTILE)), ids=list(HOSTILE))
async def test_a_hostile_record_has_a_harmless_page(console, topic, offset):
    html = await console.page(f"/topics/{topic}/records/0/{offset}")
    check_harmless(html)
    assert len(html) < 600_000
    await console.json(f"/api/topics/{topic}/records/0/{offset}")


async def test_hostile_records_are_searched_and_downloaded(console, topic):
    for query in ("text=script", "text=%3Cscript&inside=key or value", "filter=value.a is not null or value.list[0]"):
        check_harmless(await console.page(f"/topics/{topic}/search?go=true&{query}"))
    found = await console.json(f"/api/topics/{topic}/search?go=true&text=script")
    assert sorted(row["offset"] for row in found["records"]) == [0, 1, 2, 16]
    for kind in ("json", "csv", "parquet"):
        answer = await console.get(f"/topics/{topic}/search/download?as={kind}")
        assert answer.status_code == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
        if kind == "json":
            assert len([json.loads(line) for line in answer.text.splitlines()]) == len(HOSTILE)


async def test_a_tail_of_hostile_records_is_short(console, topic):
    found, positions = [], "0:0"
    while len(found) < len(HOSTILE):
        answer = await console.json(f"/api/topics/{topic}/tail?positions={positions}")
        found, positions = found + answer["records"], answer["following"]
    assert max(len(row["value"]) for row in found) < 2_000
    check_harmless(await console.page(f"/topics/{topic}/tail?positions=0:0"))


async def test_search_terms_are_only_text(console, topic):
    page = await console.get(f"/topics/{topic}/search", params={"go": "true", "text": SCRIPT, "header": SCRIPT})
    check_harmless(page.text)


def test_escapes_are_shown_for_what_could_mislead():
    assert harmless("a\x00\x1b\u202eb\ud800\n\tc") == "a\\u0000\\u001b\\u202eb\\ud800\n\tc"


@pytest.mark.parametrize("data", HOSTILE.values(), ids=list(HOSTILE))
@pytest.mark.parametrize("masks", [(), ("card",)])
def test_the_decoder_takes_anything(data, masks):
    decoder = Decoder(Masks(masks))
    for wanted in ("auto", "json", "text", "hex", "registry"):
        shown = decoder.show(data, wanted, 1_000)
        assert len(shown.text) <= 6 * 1_001
        shown.text.encode()
    decoder.brief(data, 300).encode()
