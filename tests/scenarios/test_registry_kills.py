"""Kills the leader of several registries while clients register schemas: no id twice, nothing acknowledged is lost.

In a soak, ``HEADRACE_SOAK`` is the number of kills. Any registry is killed then, and started again.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from views_harness import IS_SOAK, KILLS, SEED

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.registry_process import RegistryProcess

pytestmark = pytest.mark.xdist_group("registry-kills")

_CLIENTS = 4
_BROKER_OPTIONS = ("-o", "group.initial.rebalance.delay.ms=0", "-o", "group.min.session.timeout.ms=1000")


def _call(url: str, body: object = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data=data), timeout=40) as answer:
        return json.load(answer)


class _Client(threading.Thread):
    """Registers one schema after the other, at any registry that answers."""

    def __init__(self, name: str, registries: list[RegistryProcess], is_over: threading.Event) -> None:
        super().__init__(name=name)
        self._registries = registries
        self._is_over = is_over
        self.acknowledged: dict[str, int] = {}

    def run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            number += 1
            subject = f"{self.name}-{number}"
            schema = json.dumps({"type": "record", "name": subject.replace("-", "_"), "fields": []})
            for registry in [*self._registries] * 20:
                try:
                    answer = _call(f"{registry.url}/subjects/{subject}/versions", {"schema": schema})
                except HTTPError as error:
                    error.close()
                    time.sleep(0.1)
                    continue
                except (URLError, OSError, ValueError):
                    time.sleep(0.1)
                    continue
                assert isinstance(answer, dict)
                self.acknowledged[subject] = answer["id"]
                break


@pytest.mark.timeout(240)
def test_kill_9_of_the_leader_while_clients_register(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *_BROKER_OPTIONS) as broker:
        registries = [RegistryProcess(broker.address, tmp_path, name=f"r{at}").start() for at in range(3)]
        is_over = threading.Event()
        clients = [_Client(f"c{at}", registries, is_over) for at in range(_CLIENTS)]
        try:
            for client in clients:
                client.start()
            for killed in registries[:2]:
                _wait_for(lambda: sum(len(client.acknowledged) for client in clients), at_least=20)
                killed.kill()
                done = sum(len(client.acknowledged) for client in clients)
                _wait_for(lambda: sum(len(client.acknowledged) for client in clients), at_least=done + 20)
            is_over.set()
            for client in clients:
                client.join()
            acknowledged = {key: each for client in clients for key, each in client.acknowledged.items()}
            _check(registries[2], acknowledged)
            with RegistryProcess(broker.address, tmp_path, name="new") as new:
                _check(new, acknowledged)
        finally:
            is_over.set()
            for registry in registries:
                registry.kill()


@pytest.mark.timeout(240 + 60 * KILLS)
@pytest.mark.skipif(not IS_SOAK, reason="takes many minutes: script/soak runs it")
def test_kill_9_of_any_registry_again_and_again(tmp_path: Path) -> None:
    print(f"HEADRACE_SEED={SEED}")  # noqa: T201  shown if the test fails
    pick = random.Random(SEED)
    with BrokerProcess(tmp_path / "data", *_BROKER_OPTIONS) as broker:
        names = [f"r{at}" for at in range(3)]
        registries = [RegistryProcess(broker.address, tmp_path, name=name).start() for name in names]
        is_over = threading.Event()
        clients = [_Client(f"c{at}", registries, is_over) for at in range(_CLIENTS)]
        try:
            for client in clients:
                client.start()
            for _ in range(KILLS):
                done = sum(len(client.acknowledged) for client in clients)
                _wait_for(
                    lambda: sum(len(client.acknowledged) for client in clients), at_least=done + pick.randrange(1, 40)
                )
                at = pick.randrange(len(registries))
                registries[at].kill()
                registries[at].start()  # at another port, which the clients see
            is_over.set()
            for client in clients:
                client.join()
            acknowledged = {key: each for client in clients for key, each in client.acknowledged.items()}
            for registry in registries:
                _check(registry, acknowledged)
        finally:
            is_over.set()
            for registry in registries:
                registry.kill()


def _check(registry: RegistryProcess, acknowledged: dict[str, int]) -> None:
    found = _call(f"{registry.url}/schemas")
    assert isinstance(found, list)
    ids = {each["subject"]: each["id"] for each in found}
    assert len(set(ids.values())) == len(ids), "two schemas have one id"
    assert {subject: ids.get(subject) for subject in acknowledged} == acknowledged
    for subject, schema_id in list(acknowledged.items())[-5:]:
        answer = _call(f"{registry.url}/schemas/ids/{schema_id}")
        assert isinstance(answer, dict)
        assert json.loads(answer["schema"])["name"] == subject.replace("-", "_")


def _wait_for(count: Callable[[], int], at_least: int) -> None:
    deadline = time.monotonic() + 90
    while count() < at_least:
        assert time.monotonic() < deadline, f"only {count()} schemas were registered"
        time.sleep(0.05)


@pytest.mark.timeout(120)
def test_a_broker_that_is_away(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", *_BROKER_OPTIONS)
    try:
        with RegistryProcess(broker.address, tmp_path) as registry:
            _call(f"{registry.url}/subjects/s/versions", {"schema": '"int"'})
            broker.kill()
            assert _call(f"{registry.url}/schemas/ids/1")["schema"] == '"int"'
            started = time.monotonic()
            with pytest.raises(HTTPError) as raised:
                _call(f"{registry.url}/subjects/s/versions", {"schema": '"long"'})
            assert time.monotonic() - started < 35
            with raised.value as refused:
                assert json.load(refused)["error_code"] in (50001, 50002, 50004)
            with pytest.raises(HTTPError) as raised:
                _call(f"{registry.url}/schemas/ids/77")
            with raised.value as refused:
                assert json.load(refused)["error_code"] == 50001
            assert _call(f"{registry.url}/subjects") == ["s"]
    finally:
        broker.close()
