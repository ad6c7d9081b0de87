"""The folders of a broker, as clients see them in responses."""

from pathlib import Path

from headrace import Broker
from headrace.protocol.api import Api
from headrace.testing.raw_client import RawClient


def test_a_relative_folder_is_told_in_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Broker(data="some/where") as broker, RawClient(broker.bootstrap_servers) as client:
        (answer,) = client.ask(Api.DESCRIBE_LOG_DIRS, 4, topics=None).results
    assert Path(answer.log_dir) == tmp_path / "some" / "where"
