# ruff: noqa: T201  what it prints is its report
"""Our producer, consumer and admin client at every endpoint of a secured broker, Headrace or Apache Kafka.

    python interop/security/our_clients.py FOLDER

The settings of an endpoint are those of Java's clients, ``FOLDER/NAME.properties``. Each client produces, consumes in a
group, is denied a topic and is refused a login. Prints a line for each check and ``done`` at the end.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace import Admin, Consumer, Producer
from headrace.client.errors import AuthenticationFailed, NotAuthorized
from headrace.properties import read_properties_file

COUNT = 10
_TIMEOUT_MS = 20_000


def records(options: dict[str, Any], topic: str) -> None:
    with Producer(**options) as producer:
        sent = [producer.send(topic, b"value%d" % number) for number in range(COUNT)]
        for each in sent:
            each.result(20)
    values: list[bytes | None] = []
    with Consumer(topic, **options, group_id=topic, auto_offset_reset="earliest") as consumer:
        while len(values) < COUNT:
            found = consumer.poll(_TIMEOUT_MS)
            if not found:
                raise TimeoutError(f"only {len(values)} records came")
            values += [record.value for record in found]
    assert values == [b"value%d" % number for number in range(COUNT)], values


def is_denied(options: dict[str, Any]) -> None:
    try:
        with Producer(**options) as producer:
            producer.send("forbidden", b"denied").result(20)
    except NotAuthorized:
        return
    raise AssertionError("this should have been denied")


def is_refused(options: dict[str, Any]) -> None:
    wrong = re.sub(r'password="[^"]*"', 'password="wrong"', options["sasl_jaas_config"])
    try:
        with Admin(**{**options, "sasl_jaas_config": wrong}) as admin:
            admin.list_topics()
    except AuthenticationFailed:
        return
    raise AssertionError("this should have been refused")


def check(name: str, body: Callable[..., None], *arguments: Any) -> None:
    try:
        body(*arguments)
    except Exception as error:  # noqa: BLE001  a check that fails is a line of the report
        print(f"FAILED {name}: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
    else:
        print(f"ok {name}", flush=True)


def main(folder: Path) -> None:
    for endpoint in json.loads((folder / "endpoints.json").read_text()):
        name = endpoint["name"]
        settings = read_properties_file(folder / f"{name}.properties")
        options: dict[str, Any] = {key.replace(".", "_"): value for key, value in settings.items()}
        check(f"{name}: records", records, options, f"{endpoint['topics']}ours-{name}")
        check(f"{name}: a topic without an ACL is denied", is_denied, options)
        if "password" in endpoint:
            check(f"{name}: a wrong password is refused", is_refused, options)
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
