"""``headrace start --console``: a console in a process of its own beside the broker."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from urllib.request import urlopen

import pytest

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.properties import ConfigError
from headrace.testing.broker_process import BrokerProcess, StartFailed
from headrace.tools.start.console_beside import address_text, listener_of_console

_SAID = re.compile(r"the console is at (http://\S+), as process (\d+)")


def _wait_until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_the_console_shows_the_broker_and_the_broker_goes_on_without_it(tmp_path):
    options = ("--console", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with BrokerProcess(tmp_path / "data", *options) as broker:
        url, pid = _SAID.search(broker.log).groups()
        assert int(pid) != broker.pid
        with urlopen(f"{url}/api/overview") as answer:
            overview = json.load(answer)
        (row,) = overview["brokers"]
        assert overview["traffic"]["has_source"], "the console was not told where the metrics are"
        assert f"{row['host']}:{row['port']}" == broker.address
        os.kill(int(pid), signal.SIGKILL)
        told = "the console has ended with exit code -9; to start it again: headrace console --listen"
        _wait_until(lambda: told in broker.log)
        assert broker.is_running
        assert broker.terminate() == 0


def test_the_console_ends_when_its_broker_is_killed(tmp_path):
    with BrokerProcess(tmp_path / "data", "--console", "127.0.0.1:0") as broker:
        pid = _SAID.search(broker.log)[2]
        broker.kill()
        _wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_console_that_cannot_serve_ends_the_start(tmp_path):
    with pytest.raises(StartFailed, match=r"other hosts can reach 0\.0\.0\.0(.|\n)*the console did not start"):
        BrokerProcess(tmp_path / "data", "--console", "0.0.0.0:0")


def test_the_console_uses_a_listener_that_its_options_fit(tmp_path):
    listeners = {
        "listeners": "INSIDE://127.0.0.1:9092,OUTSIDE://127.0.0.1:9093",
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "OUTSIDE",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "log.dirs": str(tmp_path),
    }
    options = tmp_path / "client.properties"
    options.write_text("security.protocol=SASL_PLAINTEXT\n")
    config = BrokerConfig.load(listeners)
    assert listener_of_console(config, None) == "OUTSIDE"
    assert listener_of_console(config, options) == "INSIDE"
    options.write_text("security.protocol=SSL\n")
    with pytest.raises(ConfigError, match="no listener has the protocol SSL; give --console-config"):
        listener_of_console(config, options)


@pytest.mark.parametrize(
    ("host", "text"), [("", "127.0.0.1:1"), ("0.0.0.0", "127.0.0.1:1"), ("::", "[::1]:1"), ("10.0.0.1", "10.0.0.1:1")]
)
def test_the_address_of_every_interface_is_reached_on_this_host(host, text):
    assert address_text(host, 1) == text
