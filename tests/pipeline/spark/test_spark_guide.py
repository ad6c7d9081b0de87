"""The guide to topics in Spark names every option, and its blocks of code run."""

import re
from pathlib import Path

import pytest

from headrace import Admin, Broker, Producer
from headrace.pipeline.spark.sink import options as sink_options
from headrace.pipeline.spark.source import options as source_options

GUIDE = Path(__file__).parents[3] / "docs" / "spark.md"
ADDRESS = "127.0.0.1:9092"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", [*source_options._NAMES, *sink_options._NAMES])
def test_every_option_is_in_the_guide(name: str) -> None:
    assert f"`{name}`" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.timeout(300)
def test_the_guide_runs(spark, capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "__main__"}
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics(["clicks", "loud"]).all()
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("clicks", b"hello", key=b"k")
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start(1))
            # As many empty lines before it make a traceback name the line of the page.
            code = "\n" * line + block[1].replace(ADDRESS, broker.bootstrap_servers)
            exec(compile(code, str(GUIDE), "exec"), names)
        loud = spark.read.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        assert [bytes(row.value) for row in loud.option("subscribe", "loud").load().collect()] == [b"HELLO"]
    assert "hello" in capsys.readouterr().out
