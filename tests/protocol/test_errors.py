import gc
import logging

import pytest

from headrace.protocol import errors
from headrace.protocol.errors import (
    ErrorCode,
    KafkaError,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    code_for_errors,
    error_code_of,
)

CLASSES = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, KafkaError) and each is not KafkaError
]


def test_each_code_has_one_class():
    codes = [each.code for each in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all(isinstance(code, ErrorCode) for code in codes)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_kafka_error_is_its_code_and_no_matter_for_our_log(kind, caplog):
    with caplog.at_level(logging.DEBUG):
        assert error_code_of(kind("why")) is kind.code
    assert not caplog.records


def test_a_failing_disk_is_a_storage_error_and_is_logged(caplog):
    assert error_code_of(OSError(28, "No space left on device")) is ErrorCode.kafka_storage_error
    assert "No space left on device" in caplog.text


def test_a_mistake_of_ours_is_an_unknown_server_error_with_its_traceback_in_the_log(caplog):
    assert error_code_of(ZeroDivisionError("oops")) is ErrorCode.unknown_server_error
    assert caplog.records[0].exc_info is not None


def test_an_answer_without_an_error_is_left_as_it_is():
    with code_for_errors(partition_index=3) as answer:
        answer["offset"] = 7
    assert answer == {"partition_index": 3, "offset": 7}


def test_an_error_becomes_the_answers_code_and_message():
    with code_for_errors(partition_index=3) as answer:
        raise OffsetOutOfRange("offset 9 is past the end")
    assert answer == {
        "partition_index": 3,
        "error_code": ErrorCode.offset_out_of_range,
        "error_message": "offset 9 is past the end",
    }


def test_a_stranger_does_not_read_the_text_of_our_own_mistakes(caplog):
    with code_for_errors() as answer:
        raise RuntimeError("/secret/path")
    assert answer == {"error_code": ErrorCode.unknown_server_error, "error_message": None}


def test_code_for_errors_lets_the_end_of_the_process_through():
    with pytest.raises(KeyboardInterrupt), code_for_errors():
        raise KeyboardInterrupt


def test_errors_leave_nothing_to_the_garbage_collector():
    def refuse():
        with code_for_errors():
            raise OffsetOutOfRange

    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            refuse()
        assert gc.collect() < 100
    finally:
        gc.enable()


def test_classes_carry_kafkas_numbers():
    assert OffsetOutOfRange.code == 1
    assert UnknownTopicOrPartition.code == 3
    assert errors.StorageError.code == 56
