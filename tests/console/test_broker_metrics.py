"""Metrics of the brokers in the console: their endpoints, a Prometheus, and addresses that do not answer."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from console_harness import Elements

from headrace import Admin, Broker, Producer, __version__
from headrace.client.admin.quotas import DEFAULT, QuotaEntity
from headrace.console.broker_metrics import endpoints, fetching
from headrace.console.broker_metrics.endpoints import Endpoints
from headrace.console.broker_metrics.fetching import NoAnswer, fetch
from headrace.console.broker_metrics.measured import QuotaUse
from headrace.console.broker_metrics.prometheus import Prometheus
from headrace.console.broker_metrics.source import MetricsSettings
from headrace.console.cluster.quota_uses import live_uses
from headrace.http_endpoints.access import Access
from headrace.testing import ManualClock
from headrace.tools.console import main


@pytest.fixture(scope="module")
def broker():
    with Broker(config={"headrace.metrics.listener": "127.0.0.1:0"}) as broker:
        yield broker


@asynccontextmanager
async def server(answer):
    """An HTTP server.

    :param answer: given the request, returns the whole answer; None: there is no answer.
    """

    async def serve(reader, writer):
        asked = (await reader.readuntil(b"\r\n\r\n")).decode()
        text = answer(asked)
        if text is None:
            await reader.read()
        else:
            writer.write(text)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}/metrics"
    finally:
        listening.close()


def ok(body: str) -> bytes:
    return b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + body.encode()


async def test_the_overview_shows_what_the_endpoint_of_a_broker_tells(open_console, broker):
    host, port = broker.core.metrics_exporter.endpoint
    console = await open_console(metrics=MetricsSettings(endpoints=(f"http://{host}:{port}/metrics",)))
    await console.services.history.sampler.sample()
    assert (await console.json("/api/overview"))["traffic"]["requests_per_second"] is None, "one reading has no rate"
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("measured", value=b"x" * 100).result()
    await console.services.history.sampler.sample()
    found = await console.json("/api/overview")
    assert [row["version"] for row in found["brokers"]] == [__version__]
    traffic = found["traffic"]
    assert traffic["requests_per_second"] > 0
    assert traffic["bytes_in_per_second"] > 0
    assert 0 < traffic["produce_p99_ms"] < 10_000
    assert (traffic["has_source"], traffic["problems"]) == (True, [])
    lines = {line["title"]: line["points"][-1]["value"] for line in found["lines"]}
    assert lines["Requests answered"] == traffic["requests_per_second"]
    assert lines["p99 of Produce, slowest broker"] == traffic["produce_p99_ms"]
    assert "Requests/s" in Elements(await console.page("/")).text


async def test_without_metrics_the_overview_says_how_to_get_them(console):
    await console.services.history.sampler.sample()
    found = await console.json("/api/overview")
    assert (found["traffic"]["has_source"], found["brokers"][0]["version"]) == (False, None)
    assert "Requests answered" not in [line["title"] for line in found["lines"]]
    assert "Start the console with --prometheus URL" in Elements(await console.page("/")).text


async def test_rates_are_the_growth_of_all_brokers_and_a_fetch_counts_once():
    counts = [100.0]

    def answer(_):
        return ok(
            f'kafka_network_requestmetrics_requests_total{{request="Produce",version="9"}} {counts[0]}\n'
            f'kafka_network_requestmetrics_requests_total{{request="Fetch",version="12"}} {counts[0]}\n'
            f'kafka_network_requestmetrics_requests_total{{request="FetchConsumer",version="12"}} {counts[0]}\n'
            f"kafka_server_brokertopicmetrics_bytesin_total {counts[0]}\n"
            f'kafka_server_brokertopicmetrics_bytesin_total{{topic="t"}} {counts[0]}\n'
            'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 7.5\n'
            'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.50"} 99\n'
            'kafka_server_app_info{broker_id="3",version="4.1.0"} 1\n'
            "not_asked_for{} this is not a number\n"
        )

    clock = ManualClock()
    async with server(answer) as one, server(answer) as other:
        source = Endpoints([one, other], Access(), clock)
        assert (await source.read()).totals["requests"] is None
        counts[0] = 150.0
        clock.advance(10_000)
        found = await source.read()
        assert found.totals == {"requests": 20.0, "bytes_in": 10.0, "bytes_out": 0.0, "produce_p99": 7.5}
        assert found.versions == {3: "4.1.0"}
        counts[0] = 20.0  # after a restart
        clock.advance(10_000)
        assert (await source.read()).totals["requests"] == 8.0
    clock.advance(10_000)
    away = await source.read()
    assert (away.totals["requests"], len(away.problems)) == (None, 2)


async def test_the_page_of_quotas_shows_the_use_of_each_limit(open_console, broker):
    host, port = broker.core.metrics_exporter.endpoint
    limits = {QuotaEntity(client_id="limited"): 2_000.0, QuotaEntity(client_id=DEFAULT): 1e9}
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_client_quotas({entity: {"producer_byte_rate": limit} for entity, limit in limits.items()})
        for client_id in ("limited", "limited", "free"):
            with Producer(bootstrap_servers=broker.bootstrap_servers, client_id=client_id) as producer:
                producer.send("measured", value=b"x" * 4_000).result()
        console = await open_console(metrics=MetricsSettings(endpoints=(f"http://{host}:{port}/metrics",)))
        await console.services.history.sampler.sample()
        found = await console.json("/api/security/quotas?sort=value")
        admin.alter_client_quotas({entity: {"producer_byte_rate": None} for entity in limits})
    limited, default = (row["live"] for row in found["quotas"]["rows"])
    assert (limited["clients"], limited["busiest"]) == (1, "limited")
    assert limited["value"] > 0
    assert default["value"] > 0
    assert (found["has_source"], found["measured_ms"] > 0) == (True, True)
    assert "Quotas are per broker" in Elements(await console.page("/security/quotas")).text


def test_the_limit_that_counts_is_the_most_special_one():
    key, limits = "producer_byte_rate", {"producer_byte_rate": 1.0}
    entities = [("ann", DEFAULT), (DEFAULT, "app"), ("ann", None), (DEFAULT, None), (None, DEFAULT)]
    uses = [("ann", "app"), ("bob", "app"), ("ann", ""), ("bob", ""), ("eve", ""), ("", "app")]
    found = live_uses(
        {QuotaEntity(*entity): limits for entity in entities},
        [QuotaUse(user, client_id, key, float(at), None) for at, (user, client_id) in enumerate(uses)],
    )
    assert {(entity.user, entity.client_id): (use.clients, use.busiest) for (entity, _), use in found.items()} == {
        ("ann", DEFAULT): (1, "ann app"),
        (DEFAULT, "app"): (1, "bob app"),
        ("ann", None): (1, "ann"),
        (DEFAULT, None): (2, "eve"),
        (None, DEFAULT): (1, "app"),
    }
    assert live_uses({QuotaEntity("ann"): {"consumer_byte_rate": 1.0}}, [QuotaUse("ann", "", key, 1.0, None)]) == {}


async def test_without_metrics_the_page_of_quotas_says_how_to_get_the_use(console):
    found = await console.json("/api/security/quotas")
    assert (found["has_source"], found["measured_ms"]) == (False, None)
    assert "The use of quotas is in the metrics" in Elements(await console.page("/security/quotas")).text


async def test_quotas_are_those_of_the_broker_where_the_client_uses_most():
    def answer(rate):
        return lambda _: ok(
            f'kafka_server_quota_byte_rate{{resource="Produce",user="a%20b",clientId=""}} {rate}\n'
            f'kafka_server_quota_throttle_time{{resource="Produce",user="a%20b",clientId=""}} {rate / 10}\n'
            'kafka_server_quota_byte_rate{resource="Fetch",user="",clientId="app"} NaN\n'
        )

    async with server(answer(10.0)) as one, server(answer(30.0)) as other:
        found = await Endpoints([one, other], Access(), ManualClock()).read()
    assert found.uses == (QuotaUse("a b", "", "producer_byte_rate", 30.0, 3.0),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "302 Found"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "in chunks"),
        (b"no HTTP at all", "does not answer"),
        (b"A: " + b"x" * 100_000, "does not answer"),
        (ok("x" * 3_000), "more than 2000 bytes"),
        (None, "within 0.2 s"),
    ],
)
async def test_an_answer_is_bounded_in_bytes_and_time_and_redirects_are_not_followed(monkeypatch, text, reason):
    monkeypatch.setattr(fetching, "MOST_BYTES", 2_000)
    monkeypatch.setattr(fetching, "TIMEOUT_SECONDS", 0.2)
    async with server(lambda _: text) as url:
        with pytest.raises(NoAnswer, match=reason):
            await fetch(url, Access())


async def test_the_secret_is_sent(monkeypatch):
    asked = []
    async with server(lambda request: asked.append(request) or ok("")) as url:
        await fetch(url, Access(bearer_token="t0ken"))
        await fetch(url, Access(basic="a:b"))
    assert ["Authorization: Bearer t0ken" in asked[0], "Authorization: Basic YTpi" in asked[1]] == [True, True]


@pytest.mark.parametrize("text", ["kafka_server_app_info{ 1", "kafka_server_app_info x"])
def test_a_text_in_another_format_is_a_problem(text):
    with pytest.raises(NoAnswer, match="text format"):
        endpoints.parse("http://x", text.encode())


def test_the_series_are_bounded(monkeypatch):
    monkeypatch.setattr(endpoints, "_MOST_SERIES", 5)
    with pytest.raises(NoAnswer, match="more than 5 series"):
        endpoints.parse("http://x", b'kafka_server_app_info{a="1"} 1\n' * 6)


async def test_a_prometheus_is_asked_for_the_series_with_the_labels():
    asked = []

    def answer(request):
        query = parse_qs(urlsplit(request.split()[1]).query)["query"][0]
        asked.append(query)
        series = [({"headrace_total": "requests"}, "12.5"), ({"headrace_total": "bytes_in"}, "NaN")]
        if "rate(" not in query:
            series = [
                ({"__name__": "kafka_server_app_info", "broker_id": "1", "version": "4.1.0"}, "1"),
                (
                    {"__name__": "kafka_network_requestmetrics_totaltimems", "request": "Produce", "quantile": "0.99"},
                    "3",
                ),
            ]
        return ok(json.dumps({"data": {"result": [{"metric": each, "value": [0, text]} for each, text in series]}}))

    async with server(answer) as url:
        found = await Prometheus(url, {"job": 'a"b\\'}, Access(), ManualClock()).read()
    assert found.totals == {"requests": 12.5, "bytes_in": None, "bytes_out": None, "produce_p99": 3.0}
    assert (found.versions, found.problems) == ({1: "4.1.0"}, ())
    assert all('job="a\\"b\\\\"' in query for query in asked)


@pytest.mark.parametrize(
    "text", ["[]", '{"data": {"result": [1]}}', '{"data": {"result": [{"metric": {}}]}}', "[" * 9_000]
)
async def test_a_prometheus_that_answers_nonsense_is_a_problem(text):
    async with server(lambda _: ok(text)) as url:
        found = await Prometheus(url, {}, Access(), ManualClock()).read()
    assert "does not answer as a Prometheus does" in found.problems[0]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--prometheus", "file:///etc/passwd"], "is not http"),
        (["--prometheus", "http://user:secret@host"], "without user"),
        (["--broker-metrics", "http://host:99999/metrics"], "is not http"),
        (["--broker-metrics", "http://host/a b"], "is not http"),
        (["--prometheus", "http://a", "--broker-metrics", "http://b"], "not both"),
        (["--prometheus-label", "a=b"], "needs --prometheus"),
        (["--prometheus", "http://a", "--prometheus-label", 'a"=b'], "is not NAME=VALUE"),
    ],
)
def test_wrong_addresses_are_one_line(options, reason, capsys):
    assert main(["--listen", "127.0.0.1:0", *options]) == 2
    assert reason in capsys.readouterr().err
