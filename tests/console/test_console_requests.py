"""Requests that are generated from the OpenAPI document: none of them fails, and each answer is as the document says.

The values are bounds of the schemas, values that do not fit them, and hostile texts, from a seeded generator. A page is
asked by GET. An action is asked for its preview, which changes nothing; JSON that does not fit the schema of an action
must be refused.
"""

from __future__ import annotations

from random import Random
from urllib.parse import quote, urlencode

import jsonschema
import pytest

from headrace import Admin, Producer
from headrace.client.types import TopicPartition
from headrace.console.actions.table import ACTIONS
from headrace.console.pages.table import PAGES

_TEXTS = (
    "", "0", "-1", "orders", "billing", "<script>alert(1)</script>", "../../etc/passwd", "%2e%2e%2f", "' OR 1=1 --",
    "\x00", "\ud7ff", "orders\r\nset-cookie: x=1", "𝕊", "a" * 5_000, "[" * 1_000, "{}", "null", "9" * 400, "1e999", "٣",
    "2026-11-19", "(a+)+$", "value.a = 1", "0:0,1:1", "PLAINTEXT",
)  # fmt: skip
_ROUNDS = 8
_GOOD = {"topic": "orders", "group": "billing", "partition": "0", "offset": "0", "view": "pages"}


@pytest.fixture(scope="module")
def orders(broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", num_partitions=2)
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 0})
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", key=b"k", value=b'{"a": 1}', partition=0)


def value_for(schema: dict, random: Random) -> str:
    if random.random() < 0.4:
        return random.choice(_TEXTS)
    if "enum" in schema:
        return random.choice(schema["enum"])
    if schema["type"] == "integer":
        low, high = schema["minimum"], schema["maximum"]
        return str(random.choice((low, high, low - 1, high + 1, 0, 1, 10)))
    if schema["type"] == "boolean":
        return random.choice(("true", "false"))
    return random.choice(("a" * schema["maxLength"], "a" * (schema["maxLength"] + 1), *_TEXTS))


def check(answer, document, schema) -> None:
    """The status is of the request, not of the console; the body fits the schema."""
    about = (str(answer.request.url)[:300], answer.text[:300])
    assert answer.status_code < 500, about
    wanted = schema if answer.status_code == 200 else {"$ref": "#/components/schemas/Error"}
    jsonschema.validate(answer.json(), {**wanted, "components": document["components"]})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
async def test_pages_answer_as_the_document_says(console, orders, page):
    document = await console.json("/api/openapi.json")
    operation = document["paths"][page.api_path]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    random, statuses = Random(page.path), set()
    for number in range(_ROUNDS):
        path, query = page.api_path, {}
        for parameter in operation["parameters"]:
            name = parameter["name"]
            is_good = number == 0 or (random.random() < 0.7 and name in _GOOD)
            if parameter["in"] == "path":
                value = _GOOD[name] if is_good else value_for(parameter["schema"], random) or "x"
                path = path.replace(f"{{{name}}}", quote(value, safe=""))
            elif not is_good and random.random() < 0.5:
                query[name] = value_for(parameter["schema"], random)
        answer = await console.get(f"{path}?{urlencode(query)}")
        check(answer, document, schema)
        html = await console.get(f"{path.removeprefix('/api').replace('/overview', '/')}?{urlencode(query)}")
        assert "<script>alert" not in html.text
        statuses.add(answer.status_code)
    assert statuses & {200, 404}, "no request was understood"


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
async def test_actions_refuse_what_does_not_fit_and_preview_the_rest(console, orders, action):
    document = await console.json("/api/openapi.json")
    body = document["paths"][action.api_path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    random = Random(action.name)
    for name, schema in body["properties"].items():
        too_long = "a" * (schema.get("maxLength", 100) + 1)
        wrong = {"integer": "x", "boolean": "maybe"}.get(schema["type"], "nope" if "enum" in schema else too_long)
        answer = await console.call(action.name, **{name: wrong})
        assert answer.status_code in (413, 422), (name, answer.text)
        jsonschema.validate(answer.json(), {**document["components"]["schemas"]["Error"]})
    for _ in range(_ROUNDS):
        given = {
            name: value_for(schema, random) for name, schema in body["properties"].items() if random.random() < 0.8
        }
        given |= {name: _GOOD[name] for name in given.keys() & _GOOD.keys() if random.random() < 0.7}
        answer = await console.submit(action.name, **given)
        assert answer.status_code < 500, (given, answer.text)
        assert "<script>alert" not in answer.text
    assert console.audit_lines() == [], "a preview or a refusal has changed something"
