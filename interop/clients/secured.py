# ruff: noqa: T201  what it prints is for script/interop
"""Our clients on a secured broker, Apache Kafka or Headrace: every protocol, mechanism and kind of store.

    python interop/clients/secured.py FOLDER

``interop/security/files.py`` has made the folder: its ``endpoints.json`` lists the ways to connect, and each has a file
of properties, written for Java's clients. Our clients use these files as they are.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from headrace import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer
from headrace.client.errors import HeadraceError, NotAuthorized, SaslAuthenticationFailed, TlsHandshakeFailed
from headrace.properties import read_properties_file

COUNT = 200
WITHIN_MS = 30_000


def check(name: str, work: Callable[[], None]) -> None:
    began = monotonic()
    try:
        work()
    except Exception as error:  # noqa: BLE001  this is the report
        print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
    else:
        print(f"ok {name} ({monotonic() - began:.1f} s)", flush=True)


def blocking(properties: dict[str, str], topic: str) -> None:
    with Producer(config=properties) as producer:
        sent = [producer.send(topic, f"blocking {number}".encode()) for number in range(COUNT)]
    assert all(one.result(0) for one in sent)
    wanted = {f"blocking {number}".encode() for number in range(COUNT)}
    options = {**properties, "group.id": f"{topic}-blocking", "auto.offset.reset": "earliest"}
    with Consumer(config=options) as consumer:
        consumer.subscribe([topic])
        found: set[bytes | None] = set()
        deadline = monotonic() + WITHIN_MS / 1000
        while not wanted <= found and monotonic() < deadline:
            found |= {record.value for record in consumer.poll(1000)}
        consumer.commit()
    assert wanted <= found, f"{len(wanted & found)} of {COUNT} records"


async def with_asyncio(properties: dict[str, str], topic: str) -> None:
    async with AsyncProducer(config=properties) as producer:
        await (await producer.send(topic, b"asyncio"))
    options = {**properties, "group.id": f"{topic}-asyncio", "auto.offset.reset": "earliest"}
    async with AsyncConsumer(config={**options, "group.protocol": "consumer"}) as consumer:
        consumer.subscribe([topic])
        found: set[bytes | None] = set()
        deadline = monotonic() + WITHIN_MS / 1000
        while b"asyncio" not in found and monotonic() < deadline:
            found |= {record.value for record in await consumer.poll(1000)}
    assert b"asyncio" in found


def fails(kind: type[HeadraceError], properties: dict[str, str], topic: str) -> None:
    try:
        with Producer(config=properties) as producer:
            producer.send(topic, b"v").result(WITHIN_MS / 1000)
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def main(folder: Path) -> None:
    endpoints = json.loads((folder / "endpoints.json").read_text())
    admin = read_properties_file(folder / "admin.properties")
    topics = {endpoint["name"]: f"{endpoint['topics']}ours-{endpoint['name']}" for endpoint in endpoints}
    with Admin(config=admin) as client:
        client.create_topics([*topics.values(), "secure-denied"]).all()
    for endpoint in endpoints:
        name, topic = endpoint["name"], topics[endpoint["name"]]
        properties = read_properties_file(folder / f"{name}.properties")
        check(f"{name}: producer and consumer", lambda given=properties, to=topic: blocking(given, to))
        check(f"{name}: for asyncio", lambda given=properties, to=topic: asyncio.run(with_asyncio(given, to)))
    plain = read_properties_file(folder / "sasl_ssl-plain.properties")
    wrong = {**plain, "sasl.jaas.config": plain["sasl.jaas.config"].replace("alice-secret", "wrong")}
    check("a wrong password fails at once", lambda: fails(SaslAuthenticationFailed, wrong, "secure-x"))
    system = {name: value for name, value in plain.items() if "truststore" not in name}
    check("an issuer that is not trusted", lambda: fails(TlsHandshakeFailed, system, "secure-x"))
    check("a rule that denies writing", lambda: fails(NotAuthorized, plain, "secure-denied"))
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
