"""Sends clicks to the topic of this project: ``python produce.py [COUNT] [PER_SECOND]``; without COUNT until Ctrl-C."""

import json
import random
import sys
import time
import tomllib
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from headrace import Producer

PAGES = ("/", "/search", "/cart", "/checkout", "/help")


def click() -> bytes:
    made = {
        "user": f"user-{random.randrange(100)}",
        "page": random.choices(PAGES, weights=(10, 6, 3, 2, 1))[0],
        "ms": random.randrange(5, 500),
        "at": datetime.now(UTC).isoformat(),
    }
    return json.dumps(made).encode()


def main(how_many: int | None, per_second: float) -> None:
    settings = tomllib.loads((Path(__file__).parent / "headrace.toml").read_text())
    began = time.monotonic()
    with Producer(bootstrap_servers=settings["log"]["bootstrap"]) as producer:
        for number in count() if how_many is None else range(how_many):
            producer.send("clicks", click())
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:3]]
    try:
        main(arguments[0] if arguments else None, arguments[1] if len(arguments) > 1 else 1000)
    except KeyboardInterrupt:
        sys.exit(130)
