"""``headrace delete-records``: deletes the oldest records of partitions, up to the offsets that a file names."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from headrace.tools.shared.commands import DONE, FAILED, Output, Table, connect, new_parser, read_json, run
from headrace.tools.shared.partition_files import entries

_EXAMPLES = """
headrace delete-records --offset-json-file delete.json
delete.json: {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 100}]}
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser("delete-records", "Delete the records of partitions below given offsets.", _EXAMPLES)
    parser.add_argument(
        "--offset-json-file",
        metavar="FILE",
        type=Path,
        required=True,
        help="a file with partitions, each with the offset of the first record to keep; -1 deletes all records",
    )
    return parser


def _work(options: Namespace, out: Output) -> int:
    path = options.offset_json_file
    wanted = {
        partition: item["offset"] for partition, item in entries(read_json(path), str(path), wanted={"offset": int})
    }
    with connect(options) as admin:
        out.say("Executing records delete operation")
        results = admin.delete_records(wanted)
    out.say("Records delete operation completed:")
    low_watermarks, errors = results.ok, results.errors
    out.show(
        [
            {"topic": at.topic, "partition": at.partition, "lowWatermark": low_watermark}
            for at, low_watermark in low_watermarks.items()
        ]
        + [{"topic": at.topic, "partition": at.partition, "error": str(error)} for at, error in errors.items()],
        [f"partition: {at}\tlow_watermark: {low_watermark}" for at, low_watermark in low_watermarks.items()]
        + [f"partition: {at}\terror: {error}" for at, error in errors.items()],
        Table(
            ("TOPIC", "PARTITION", "LOW WATERMARK", "ERROR"),
            [(*at, low_watermarks.get(at), errors.get(at, "")) for at in results],
        ),
    )
    return FAILED if errors else DONE
