"""dump-log: Kafka's words for what is in the files, and a clear word for what is wrong with them."""

import json
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from headrace.log.producer_state import KeptBatch, Producer, ProducerStates
from headrace.log.snapshots import encode_snapshot
from headrace.protocol.batch_building import build_batch, control_record
from headrace.protocol.record_body import ControlKind, Record
from headrace.protocol.records import Codec, compute_crc
from headrace.tools.dump_log.command import main

NAME = "00000000000000000010"
FIRST = build_batch(
    [Record(10, 1000, b"k1", b"v1", (("h", b"1"), ("i", None))), Record(11, 3000, None, b"v2")],
    base_offset=10, producer_id=7, producer_epoch=1, base_sequence=4, leader_epoch=2,
)  # fmt: skip
SECOND = build_batch([Record(12, 4000, b"gone", None)], base_offset=12, codec=Codec.zstd)

Dump = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def dump(capsys: pytest.CaptureFixture[str]) -> Dump:
    def run(*arguments: object) -> tuple[int, list[str], list[str]]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err.splitlines()

    return run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(FIRST + SECOND)
    return path


def test_batches_are_shown_in_kafkas_words(dump, log):
    code, lines, complaints = dump("--files", log)
    crc = int.from_bytes(FIRST[17:21], "big")
    assert (code, complaints) == (0, [])
    assert lines[:3] == [
        f"Dumping {log}",
        "Log starting offset: 10",
        "baseOffset: 10 lastOffset: 11 count: 2 baseSequence: 4 lastSequence: 5 producerId: 7 producerEpoch: 1 "
        "partitionLeaderEpoch: 2 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: 3000 size: {len(FIRST)} magic: 2 compresscodec: none crc: {crc} isvalid: true",
    ]
    assert f"position: {len(FIRST)} CreateTime: 4000" in lines[3]
    assert "compresscodec: zstd" in lines[3]
    assert len(lines) == 4


def test_deep_iteration_shows_records_without_what_they_say(dump, log):
    _, lines, _ = dump("--files", log, "--deep-iteration")
    assert [line for line in lines if line.startswith("|")] == [
        "| offset: 10 CreateTime: 1000 keySize: 2 valueSize: 2 sequence: 4 headerKeys: [h,i]",
        "| offset: 11 CreateTime: 3000 keySize: -1 valueSize: 2 sequence: 5 headerKeys: []",
        "| offset: 12 CreateTime: 4000 keySize: 4 valueSize: -1 sequence: -1 headerKeys: []",
    ]


def test_print_data_log_shows_keys_and_values(dump, log):
    _, lines, _ = dump("--files", log, "--print-data-log")
    records = [line for line in lines if line.startswith("|")]
    assert records[0].endswith("headerKeys: [h,i] key: k1 payload: v1")
    assert records[1].endswith("headerKeys: [] payload: v2")
    assert records[2].endswith("headerKeys: [] key: gone")


def test_machines_get_one_object_a_line(dump, tmp_path):
    log = tmp_path / f"{NAME}.log"
    log.write_bytes(build_batch([Record(10, 5, b"\xff", b"v")], base_offset=10, delete_horizon_ms=9))
    _, lines, _ = dump("--files", log, "--print-data-log", "--json")
    batch, record = map(json.loads, lines)
    assert (batch["file"], batch["type"], batch["isvalid"], batch["deleteHorizonMs"]) == (str(log), "batch", True, 9)
    assert (record["type"], record["offset"], record["key"], record["payload"]) == (
        "record", 10, {"base64": "/w=="}, "v",
    )  # fmt: skip


def test_ends_of_transactions_are_named(dump, tmp_path):
    log = tmp_path / f"{NAME}.log"
    marker = control_record(ControlKind.abort, 5, offset=10, timestamp_ms=1)
    log.write_bytes(build_batch([marker], base_offset=10, is_control=True, is_transactional=True))
    _, lines, _ = dump("--files", log, "--deep-iteration")
    assert lines[-1].endswith("endTxnMarker: ABORT coordinatorEpoch: 5")


def test_log_append_time_is_called_so(dump, tmp_path):
    log = tmp_path / f"{NAME}.log"
    log.write_bytes(build_batch([Record(10, 5, b"k", b"v")], base_offset=10, log_append_time_ms=77))
    _, lines, _ = dump("--files", log, "--deep-iteration")
    assert all("LogAppendTime: 77" in line for line in lines[2:])


def test_a_cut_log_is_shown_as_far_as_it_goes(dump, log):
    for size_bytes in range(len(FIRST) + 1, len(FIRST + SECOND)):
        log.write_bytes((FIRST + SECOND)[:size_bytes])
        code, lines, complaints = dump("--files", log, "--print-data-log")
        rest_bytes = size_bytes - len(FIRST)
        assert (code, len(lines)) == (1, 5)
        assert complaints == [
            f"headrace dump-log: {log}: {rest_bytes} invalid bytes at the end, from position {len(FIRST)} on"
        ]


def test_a_batch_that_fails_its_crc_does_not_hide_the_next(dump, log):
    damaged = bytearray(FIRST + SECOND)
    damaged[len(FIRST) - 3] ^= 1
    log.write_bytes(damaged)
    code, lines, complaints = dump("--files", log, "--deep-iteration")
    assert code == 1
    assert complaints == [f"headrace dump-log: {log}: the batch at position 0 does not match its crc"]
    assert [line.rsplit(maxsplit=1)[-1] for line in lines[2:4]] == ["false", "true"]
    assert lines[4].startswith("| offset: 12")


def test_any_flipped_byte_is_survived(dump, log):
    for at in range(len(FIRST)):
        damaged = bytearray(FIRST + SECOND)
        damaged[at] ^= 0xFF
        log.write_bytes(damaged)
        code, _, complaints = dump("--files", log, "--print-data-log")
        # The crc covers neither the base offset nor the epoch, and a batch may begin above the segment's own offset.
        assert (code, bool(complaints)) in (
            [(1, True)] if not 1 <= at < 16 or 8 <= at < 12 else [(0, False), (1, True)]
        )


def test_records_that_contradict_their_batch_are_said_to(dump, log):
    batch = bytearray(build_batch([Record(10, 5, b"key", b"v")], base_offset=10, codec=Codec.gzip))
    batch[61:65] = b"\0\0\0\0"
    batch[17:21] = compute_crc(batch, 0, len(batch)).to_bytes(4, "big")
    log.write_bytes(batch)
    code, lines, complaints = dump("--files", log, "--deep-iteration")
    assert (code, len(lines), len(complaints)) == (1, 3, 1)
    assert "the records of the batch at position 0 cannot be read" in complaints[0]


def test_offsets_that_go_back_are_said_to(dump, log):
    log.write_bytes(SECOND + FIRST)
    code, _, complaints = dump("--files", log)
    assert (code, complaints) == (1, [f"headrace dump-log: {log}: offset 10 at position {len(SECOND)} follows 12"])


def test_old_message_formats_are_named(dump, log):
    old = bytearray(FIRST)
    old[16] = 1
    log.write_bytes(old)
    assert dump("--files", log)[2] == [f"headrace dump-log: {log}: the batch at position 0 has magic 1, only 2 is read"]


def test_max_bytes_stops_early(dump, log):
    code, lines, _ = dump("--files", log, "--max-bytes", 1)
    assert (code, len(lines)) == (0, 3)


# -- indexes


def test_an_index_that_fits_its_log(dump, log):
    index = log.with_suffix(".index")
    index.write_bytes(pack(">iiii", 1, 0, 2, len(FIRST)))
    assert dump("--files", index) == (
        0, [f"Dumping {index}", "offset: 11 position: 0", f"offset: 12 position: {len(FIRST)}"], [],
    )  # fmt: skip
    assert dump("--files", index, "--verify-index-only") == (0, [f"Dumping {index}"], [])
    assert dump("--files", index, "--index-sanity-check")[1][1] == f"{index} passed sanity check."
    _, (line,), _ = dump("--files", index, "--index-sanity-check", "--json")
    assert json.loads(line) == {"file": str(index), "type": "index", "passedSanityCheck": True}


def test_an_index_that_does_not_fit_its_log(dump, log):
    index = log.with_suffix(".index")
    index.write_bytes(pack(">iiii", 1, len(FIRST), 2, 5) + b"xyz")
    code, lines, complaints = dump("--files", index, "--verify-index-only")
    assert (code, len(lines)) == (1, 1)
    assert [line.split(": ", 2)[2] for line in complaints] == [
        "19 bytes are not a whole number of entries of 8",
        f"offset 11 has an entry for position {len(FIRST)}, but the batch there ends with offset 12",
        "offset 12 has an entry for position 5, but no batch begins there",
    ]
    code, _, complaints = dump("--files", index, "--index-sanity-check")
    assert (code, len(complaints)) == (1, 1)
    code, (line,), complaints = dump("--files", index, "--index-sanity-check", "--json")
    assert (code, json.loads(line)["passedSanityCheck"], len(complaints)) == (1, False, 1)


def test_a_time_index_that_fits_its_log(dump, log):
    index = log.with_suffix(".timeindex")
    index.write_bytes(pack(">qiqi", 3000, 1, 4000, 2))
    assert dump("--files", index) == (
        0, [f"Dumping {index}", "timestamp: 3000 offset: 11", "timestamp: 4000 offset: 12"], [],
    )  # fmt: skip
    assert dump("--files", index, "--index-sanity-check")[0] == 0


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ((3001, 1, 4000, 2), "offset 11 has an entry with timestamp 3001, but the batch has timestamp 3000"),
        ((3000, 1, 3000, 1), "timestamp 3000 follows 3000"),
        ((3000, 1, 4000, 3), "offset 13 is not in the log"),
    ],
)
def test_a_time_index_that_does_not_fit_its_log(dump, log, entries, reason):
    index = log.with_suffix(".timeindex")
    index.write_bytes(pack(">qiqi", *entries))
    code, _, complaints = dump("--files", index, "--verify-index-only")
    assert (code, complaints) == (1, [f"headrace dump-log: {index}: {reason}"])


@pytest.mark.parametrize(("suffix", "entry"), [(".index", pack(">ii", 1, 0)), (".timeindex", pack(">qi", 3000, 1))])
def test_the_unused_rest_of_an_index_that_apache_writes_is_passed_over(dump, log, suffix, entry):
    index = log.with_suffix(suffix)
    index.write_bytes(entry + bytes(len(entry) * 50))
    code, lines, _ = dump("--files", index)
    assert (code, len(lines)) == (0, 2)


def test_an_index_without_its_log(dump, log):
    index = log.with_suffix(".index")
    index.write_bytes(b"")
    log.unlink()
    assert dump("--files", index)[::2] == (1, [f"headrace dump-log: {index}: there is no {log} beside it"])


# -- producers


def test_snapshots_show_their_producers(dump, tmp_path):
    idle, busy = Producer(0), Producer(3)
    busy.batches.append(KeptBatch(4, 6, 20, 22, 99))
    busy.last_timestamp_ms, busy.coordinator_epoch, busy.txn_first_offset = 99, 8, 20
    states = ProducerStates()
    states.restore([(1, idle), (2, busy)])
    path = tmp_path / f"{NAME}.snapshot"
    path.write_bytes(encode_snapshot(states))
    code, lines, _ = dump("--files", path)
    assert code == 0
    assert lines[1].startswith("producerId: 1 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: Opt")
    assert lines[2] == (
        "producerId: 2 producerEpoch: 3 coordinatorEpoch: 8 currentTxnFirstOffset: OptionalLong[20] lastTimestamp: 99 "
        "firstSequence: 4 lastSequence: 6 lastOffset: 22 offsetDelta: 2 timestamp: 99"
    )
    path.write_bytes(path.read_bytes()[:-1])
    assert dump("--files", path)[::2] == (1, [f"headrace dump-log: {path}: is truncated or does not match its crc"])


def test_aborted_transactions(dump, tmp_path):
    path = tmp_path / f"{NAME}.txnindex"
    path.write_bytes(pack(">hqqqq", 0, 8, 900, 902, 903))
    assert dump("--files", path)[1][1] == (
        "version: 0 producerId: 8 firstOffset: 900 lastOffset: 902 lastStableOffset: 903"
    )


# -- use


def test_a_missing_file_is_one_line_and_the_others_are_shown(dump, log, tmp_path):
    missing = tmp_path / "00000000000000000000.log"
    code, lines, complaints = dump("--files", f"{missing},{log}")
    assert (code, complaints) == (1, [f"headrace dump-log: {missing}: there is no such file"])
    assert f"Dumping {log}" in lines


def test_a_folder_in_place_of_a_file(dump, tmp_path):
    for suffix in (".log", ".index", ".snapshot"):
        folder = tmp_path / f"{NAME}{suffix}"
        folder.mkdir()
        code, _, complaints = dump("--files", folder)
        assert (code, len(complaints)) == (1, 1)


def test_a_file_of_another_kind_is_passed_over(dump, tmp_path):
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n0\n")
    code, _, complaints = dump("--files", path)
    assert (code, len(complaints)) == (0, 1)


def test_a_name_that_is_no_offset(dump, tmp_path):
    path = tmp_path / "some.log"
    path.write_bytes(FIRST)
    assert dump("--files", path)[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["--files"], ["--files", "a.log,"], ["--files", "a.log", "--nonsense"],
     ["--files", "a.log", "--key-decoder-class", "com.example.Mine"]],
)  # fmt: skip
def test_wrong_use_exits_with_2(arguments, capsys):
    assert main(arguments) == 2
    assert "usage: headrace dump-log" in capsys.readouterr().err
