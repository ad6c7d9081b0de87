"""``headrace dump-log``: prints the contents of the files of a partition, in the words of Kafka's own dump tool.

====================  ===============================================================================================
``.log``              a line per batch; with ``--deep-iteration`` a line per record; with ``--print-data-log`` or a
                      decoder also the key and value of each record
``.index``            each entry, and whether the batch of that offset begins at that position of the .log beside it
``.timeindex``        each entry, and whether the batch of that offset has that timestamp
``.snapshot``         the producers
``.txnindex``         the aborted transactions
====================  ===============================================================================================

The command reads the files of Apache Kafka and of Headrace, also while a broker writes them. It has no decoders for
Kafka's metadata log, share groups and tiered storage, because Headrace writes none of these.

The command prints a damaged file as far as the file can be read. It prints each problem as one line on standard error,
continues with the other files, and exits with code 1.

``--json`` prints one object per line, with the same field names, and with the file and the kind in each object.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

from headrace.log.segment import INDEX, LOG, TIMEINDEX, TXNINDEX
from headrace.log.snapshots import SNAPSHOT
from headrace.protocol.internal_layouts import InternalTopic
from headrace.tools.dump_log import indexes as dump_indexes
from headrace.tools.dump_log.decoders import PARTS, Decoder, by_class, internal, part_named
from headrace.tools.dump_log.output import DumpOutput
from headrace.tools.dump_log.segment import NO_LIMIT_BYTES, SegmentView, dump_segment
from headrace.tools.shared.commands import Output, new_parser, progress, run

_KNOWN = (LOG, INDEX, TIMEINDEX, SNAPSHOT, TXNINDEX)
#: Files of this size get a progress bar.
_LONG_BYTES = 16 * 1024 * 1024
_STRING = PARTS["StringDecoder"]

_EXAMPLES = """
headrace dump-log --files headrace-data/orders-0/00000000000000000000.log --print-data-log
headrace dump-log --files a/00000000000000000000.index,a/00000000000000000000.timeindex --verify-index-only
headrace dump-log --files headrace-data/__consumer_offsets-7/00000000000000000000.log --offsets-decoder
headrace dump-log --files headrace-data/__transaction_state-3/00000000000000000000.log --transaction-log-decoder --json
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser("dump-log", "Show the contents of the files of a partition.", _EXAMPLES, connects=False)
    add = parser.add_argument
    add("--files", metavar="FILE,FILE,...", type=_file_names, required=True, help="the files to show")
    add("--print-data-log", action="store_true", help="show the records, with key and value")
    add("--deep-iteration", action="store_true", help="show the records, without key and value")
    add(
        "--skip-record-metadata",
        action="store_true",
        help="show only the keys and values of records, and no control records",
    )
    add("--offsets-decoder", action="store_true", help="decode records as those of __consumer_offsets")
    add("--transaction-log-decoder", action="store_true", help="decode records as those of __transaction_state")
    names = ", ".join(PARTS)
    add("--key-decoder-class", metavar="NAME", type=part_named, help=f"decode keys with one of {names}")
    add("--value-decoder-class", metavar="NAME", type=part_named, help=f"decode values with one of {names}")
    add("--index-sanity-check", action="store_true", help="only check whether a broker would accept the index")
    add("--verify-index-only", action="store_true", help="compare indexes with their log, without printing entries")
    add("--max-bytes", metavar="N", type=int, default=NO_LIMIT_BYTES, help="read at most this many bytes of a log")
    add("--max-message-size", metavar="N", type=int, help="accepted and ignored: the command reads batches of any size")
    return parser


def _file_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ArgumentTypeError("a file name is empty")
    return names


def _work(options: Namespace, _: Output) -> int:
    out = DumpOutput(sys.stdout, sys.stderr, as_json=options.json)
    view = _view(options)
    for path in map(Path, options.files):
        _dump(path, options, view, out)
    return 1 if out.faults else 0


def _view(options: Namespace) -> SegmentView:
    decoder = _decoder(options)
    return SegmentView(
        max_bytes=options.max_bytes,
        shows_records=options.deep_iteration or decoder is not None,
        decoder=decoder,
        shows_metadata=not options.skip_record_metadata,
    )


def _decoder(options: Namespace) -> Decoder | None:
    if options.offsets_decoder:
        return internal(InternalTopic.CONSUMER_OFFSETS)
    if options.transaction_log_decoder:
        return internal(InternalTopic.TRANSACTION_STATE)
    key, value = options.key_decoder_class, options.value_decoder_class
    if options.print_data_log or key or value:
        return by_class(key or _STRING, value or _STRING)
    return None


def _dump(path: Path, options: Namespace, view: SegmentView, out: DumpOutput) -> None:
    out.begin(path)
    if path.suffix not in _KNOWN:
        out.note(f"unknown kind of file, ignored; known are {', '.join(_KNOWN)}")
        return
    try:
        _dump_known(path, options, view, out)
    except FileNotFoundError as error:
        out.fault("there is no such file" if error.filename == str(path) else f"there is no {error.filename} beside it")
    except BrokenPipeError:
        raise
    except OSError as error:
        out.fault(f"cannot be read: {error.strerror}")


def _dump_known(path: Path, options: Namespace, view: SegmentView, out: DumpOutput) -> None:
    size_bytes = os.stat(path).st_size
    if path.suffix == SNAPSHOT:
        dump_indexes.dump_snapshot(path, out)
    elif path.suffix == TXNINDEX:
        dump_indexes.dump_txn_index(path, out)
    elif not path.stem.isdecimal():
        out.fault("the file name is not the base offset with 20 digits")
    elif path.suffix == LOG:
        if size_bytes < _LONG_BYTES or sys.stdout.isatty():  # The lines of output would break a progress bar.
            dump_segment(path, int(path.stem), view, out, lambda _: None)
            return
        with progress(path.name, min(size_bytes, view.max_bytes), unit="bytes") as moved_to:
            dump_segment(path, int(path.stem), view, out, moved_to)
    elif options.index_sanity_check:
        (dump_indexes.check_index if path.suffix == INDEX else dump_indexes.check_time_index)(path, out)
    else:
        dump = dump_indexes.dump_index if path.suffix == INDEX else dump_indexes.dump_time_index
        dump(path, int(path.stem), out, shows_entries=not options.verify_index_only)
