"""The failures that are tried again, and the times of the tries."""

import pytest

from headrace.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ErrorCode,
    KafkaTimeout,
    NotAuthorized,
    UnknownTopic,
    error_for,
)
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.runner.retries import FIRST_BACKOFF_MS, LAST_BACKOFF_MS, STEADY_MS, UNKNOWN_TRIES, Retries
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable, UnsuitableSchema
from headrace.pipeline.spark.options import BadOption
from headrace.pipeline.version.failures import FailureKind, classify_failure, summary_of
from headrace.testing import ManualClock

T, P, U = FailureKind.TRANSIENT, FailureKind.PERMANENT, FailureKind.UNKNOWN
ONCE, MEMORY = FailureKind.PROBABLY_PERMANENT, FailureKind.OUT_OF_MEMORY


def raised_from(error, cause):
    error.__cause__ = cause
    return error


FROM_PLANNER = """[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance runs latestOffset:
Traceback (most recent call last):
  File "/x/pyspark/sql/worker/plan_data_source_read.py", line 92, in main
    reader.latestOffset()
  File "/x/headrace/pipeline/spark/log_offsets.py", line 40, in report_loss
    raise DataLost(...)
data_loss.DataLost: the topic 'clicks' was deleted and created again; set failOnDataLoss to false
 SQLSTATE: 38000"""
UNREACHABLE = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/x/headrace/client/cluster.py", line 9, in connect
headrace.client.errors.BrokerUnreachable: no broker at 127.0.0.1:9092 answers
"""
USER_CODE = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "queries.py", line 3, in decode
ZeroDivisionError: division by zero
"""


IN_STREAM = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "queries.py", line 9, in number
    return int(text)
           ^^^^^^^^^
ValueError: invalid literal
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
"""
FROM_JAVA = """An error occurred while calling o749.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkRuntimeException: [SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row. SQLSTATE: 21000
\tat org.apache.spark.sql.Subquery.updateResult(subquery.scala:10)
"""


def of_database(state):
    """As SQLAlchemy wraps what a driver of PostgreSQL raises."""
    driver = type("DriverError", (Exception,), {"sqlstate": state})("no")
    return type("Wrapped", (Exception,), {"orig": driver})("no")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (BrokerUnreachable("away"), T),
        (KafkaTimeout("slow"), T),
        (BrokerError(ErrorCode.not_leader_or_follower), T),
        (BrokerError(ErrorCode.invalid_record), P),
        (error_for(ErrorCode.unknown_topic_or_partition), P),
        (NotAuthorized(ErrorCode.topic_authorization_failed), P),
        (UnknownTopic(), P),
        (DataLost("gone"), P),
        (DatabaseUnreachable("away"), T),
        (DatabaseBusy("locked"), T),
        (UnsuitableSchema("no"), P),
        (BadOption("no"), P),
        (ConnectionResetError("reset"), T),
        (ValueError("math domain error"), ONCE),
        (AssertionError("our own mistake"), ONCE),
        (OSError("who knows"), U),
        (RuntimeError("who knows"), U),
        (MemoryError(), MEMORY),
        (raised_from(ValueError("wrapped"), BrokerUnreachable("away")), T),
        (raised_from(RuntimeError("wrapped"), BrokerUnreachable("away")), T),
        (raised_from(BrokerUnreachable("closing"), DataLost("gone")), P),
        (RuntimeError(FROM_PLANNER), P),
        (RuntimeError(UNREACHABLE), T),
        (RuntimeError(USER_CODE), P),
        *(
            (RuntimeError(USER_CODE.replace("ZeroDivisionError: division by zero", line)), found)
            for line, found in (
                ("KeyError", P),
                ("RuntimeError: no", P),
                ("pyarrow.lib.ArrowInvalid: Could not convert 'x'", P),
                ("OSError: [Errno 5] Input/output error", U),
                ("ConnectionRefusedError: [Errno 111] no", T),
                ("MemoryError", MEMORY),
                ("decode.<locals>.Mine: of the user", ONCE),
                ("shop.errors.Strange", ONCE),
                ("headrace.client.errors.SomethingElse: ours", U),
                ("ValueError: first\nKeyError: no class, but text", P),
            )
        ),
        (RuntimeError(IN_STREAM), P),
        (RuntimeError(": org.apache.spark.SparkException: More than one row SQLSTATE: 21000"), P),
        (RuntimeError("[INTERNAL_ERROR] The Spark SQL phase failed SQLSTATE: XX000"), U),
        (RuntimeError("Lost task 1.0: java.lang.OutOfMemoryError: Java heap space"), MEMORY),
        (RuntimeError("[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes. SQLSTATE: 53200"), MEMORY),
        (RuntimeError("ExecutorLostFailure (executor 1 exited) Reason: Command exited with code 52"), MEMORY),
        (RuntimeError("ExecutorLostFailure (executor 1 exited) Reason: Command exited with code 137"), T),
        (of_database("22003"), P),
        (of_database("40001"), T),
        (of_database("57P01"), T),
        (RuntimeError("headrace.client.errors.BrokerError: asked for offsets (coordinator_not_available)"), T),
        (RuntimeError("headrace.client.errors.BrokerError: asked for offsets (invalid_request)"), P),
        (RuntimeError("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)"), T),
        (RuntimeError("Python worker exited unexpectedly (crashed)"), T),
        (RuntimeError("Python worker failed to connect back."), T),  # of a machine that is very busy
        (RuntimeError("(psycopg.errors.DeadlockDetected) deadlock detected"), T),
        (RuntimeError("(sqlite3.OperationalError) database or disk is full"), T),
        (RuntimeError("a column named 'DataLost' is no reason"), U),
    ],
)
def test_the_verdict(error, verdict):
    assert classify_failure(error) is verdict


def test_analysis_errors_of_spark_do_not_pass():
    from pyspark.errors import AnalysisException

    assert classify_failure(AnalysisException("there is no such column")) is P


def _raises(_value):
    raise ValueError("no number")


def _gives_a_mapping(_value):
    return {"a": 1}


@pytest.mark.parametrize(
    "make",
    [
        lambda spark, udf: spark.range(2).select(udf(_raises, "long")("id")),
        lambda spark, udf: spark.range(2).select(udf(_gives_a_mapping, "int")("id")),
        lambda spark, _: spark.sql("SELECT 1 / (id - 1) FROM range(2)"),
        lambda spark, _: spark.sql("SELECT CAST(concat('x', id) AS INT) FROM range(2)"),
        lambda spark, _: spark.sql("SELECT sum(9223372036854775807 + 0 * id) FROM range(3)"),
        lambda spark, _: spark.sql("SELECT array(1)[id] FROM range(2)"),
        lambda spark, _: spark.sql("SELECT (SELECT id FROM range(3))"),
        lambda spark, _: spark.sql("SELECT no_such_function(id) FROM range(2)"),
    ],
)
def test_what_spark_raises_for_the_same_data_again_does_not_pass(spark, make):
    from pyspark.sql.functions import udf

    with pytest.raises(Exception) as caught:
        make(spark, udf).toArrow()
    assert classify_failure(caught.value) is P
    assert "\n" not in summary_of(caught.value)


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("no broker", "no broker"),
        (FROM_PLANNER, "DataLost: the topic 'clicks' was deleted and created again; set failOnDataLoss to false"),
        (UNREACHABLE, "BrokerUnreachable: no broker at 127.0.0.1:9092 answers"),
        (USER_CODE, "ZeroDivisionError: division by zero"),
        (USER_CODE.replace("ZeroDivisionError: division by zero", "KeyError"), "KeyError"),
        (USER_CODE.replace("ZeroDivisionError:", "decode.<locals>.Mine:"), "Mine: division by zero"),
        (IN_STREAM, "ValueError: invalid literal"),
        (FROM_JAVA, "More than one row. SQLSTATE: 21000"),
        ("[SOME.CONDITION] what it is\nwith a plan below", "what it is"),
        ("x" * 600, "x" * 500 + " ..."),
        ("", "RuntimeError"),
    ],
)
def test_the_summary_is_what_went_wrong(text, summary):
    assert summary_of(RuntimeError(text)) == summary


KEY = ("pages", 1)


def test_waits_double_up_to_a_bound():
    retries = Retries(ManualClock())
    waits = [retries.failed(KEY, T) for _ in range(9)]
    assert waits == [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]
    assert (waits[0], waits[-1]) == (FIRST_BACKOFF_MS, LAST_BACKOFF_MS)


def test_one_that_ran_well_begins_with_the_shortest_wait():
    retries = Retries(ManualClock())
    retries.failed(KEY, T)
    assert retries.failed(KEY, T, ran_ms=STEADY_MS - 1) == 2 * FIRST_BACKOFF_MS
    assert retries.failed(KEY, T, ran_ms=STEADY_MS) == FIRST_BACKOFF_MS


def test_one_that_has_committed_something_begins_anew_whatever_it_was():
    retries = Retries(ManualClock())
    for verdict in (T, U):
        retries.failed(KEY, verdict)
        assert retries.failed(KEY, verdict, has_committed=True) == FIRST_BACKOFF_MS
    assert retries.failed(KEY, U, ran_ms=10 * STEADY_MS) == 2 * FIRST_BACKOFF_MS, (
        "it may take its time, and fail for ever"
    )


def test_what_nobody_knows_is_tried_a_few_times():
    retries = Retries(ManualClock())
    waits = [retries.failed(KEY, U) for _ in range(UNKNOWN_TRIES + 1)]
    assert [wait is None for wait in waits] == [False] * UNKNOWN_TRIES + [True]


def test_what_will_hardly_pass_is_tried_once_more():
    for verdict in (ONCE, MEMORY):
        retries = Retries(ManualClock())
        assert [retries.failed(KEY, verdict, ran_ms=10 * STEADY_MS) for _ in range(2)] == [FIRST_BACKOFF_MS, None]


def test_it_is_due_when_its_time_has_come():
    clock = ManualClock()
    retries = Retries(clock)
    assert retries.is_due(KEY)
    retries.failed(KEY, T)
    clock.advance(FIRST_BACKOFF_MS - 1)
    assert not retries.is_due(KEY)
    clock.advance(1)
    assert retries.is_due(KEY)
    retries.failed(KEY, P)
    clock.advance(10**9)
    assert not retries.is_due(KEY)
    retries.forget(KEY)
    assert retries.is_due(KEY)
