"""Runs the commands of docs/telemetry.md with a client that pushes, and compares the tables with the code."""

import re
import shlex
from pathlib import Path
from urllib.request import urlopen

from headrace import Producer
from headrace.broker.configs.client_metrics import CLIENT_METRICS_KEYS
from headrace.broker.telemetry import instances, names, otlp, series
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.ports import free_port
from headrace.tools.client_metrics import main as client_metrics

GUIDE = Path(__file__).parents[2] / "docs" / "telemetry.md"
TEXT = GUIDE.read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAMPLE = re.compile(r"^(\w+)\{(.*)\} \S+$")


def sample(line: str) -> tuple[str, list[str]]:
    """The name of a metric and the names of its labels."""
    found = _SAMPLE.match(line)
    assert found is not None, line
    return found[1], re.findall(r'(\w+)="', found[2])


def test_the_commands_of_the_guide_show_the_metrics_of_a_client(tmp_path: Path) -> None:
    (block,) = _BLOCK.findall(TEXT)
    start, subscribe, scrape, shown = block.splitlines()
    endpoint = f"127.0.0.1:{free_port()}"
    program, command, *options = shlex.split(start.removeprefix("$ "))
    assert (program, command) == ("headrace", "start")
    options[options.index("--metrics") + 1] = endpoint
    with BrokerProcess(tmp_path, *options) as broker:
        program, command, *arguments = shlex.split(subscribe.removeprefix("$ "))
        assert (program, command) == ("headrace", "client-metrics")
        assert client_metrics(["--bootstrap-server", broker.address, *arguments]) == 0
        with Producer(bootstrap_servers=broker.address, client_id="billing") as producer:
            producer.send("orders", b"one")
            producer.flush()
            producer.client_instance_id()  # the client has its subscription: it pushes when it is closed
        url = re.search(r"http\S+", scrape)
        assert url is not None
        with urlopen(url[0].replace("127.0.0.1:9404", endpoint)) as answer:
            lines = [line for line in answer.read().decode().splitlines() if "org_apache_kafka" in line]
    metric, labels = sample(shown)
    (pushed,) = [line for line in lines if line.startswith(f"{metric}{{")]
    assert sample(pushed) == (metric, labels)
    assert 'client_id="billing"' in pushed


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the first table behind a heading, by their first cell."""
    table = TEXT[TEXT.index(f"\n## {heading}\n") :].split("\n\n|", 1)[1].split("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {first: rest for first, *rest in cells}


def test_the_settings_of_a_subscription_are_those_of_the_code() -> None:
    shown = {name.strip("`"): default for name, (_, default) in rows("Subscriptions").items()}
    assert shown.keys() == CLIENT_METRICS_KEYS.keys()
    assert int(shown["interval.ms"].replace(",", "")) == CLIENT_METRICS_KEYS["interval.ms"].default


def test_the_limits_are_those_of_the_code() -> None:
    shown = {what: limit for what, (limit, _) in rows("Limits").items()}
    assert shown["clients of a broker"] == f"{instances.MAX_INSTANCES:,}"
    assert shown["series of a client"] == f"{series.MAX_SERIES_PER_CLIENT:,}"
    assert shown["the same after decompression"].startswith(f"{otlp.MAX_DECOMPRESSED_BYTES >> 20} MiB")
    assert shown["labels of a series; length of a label"] == f"{otlp._MAX_LABELS}; {names._MAX_VALUE} characters"
