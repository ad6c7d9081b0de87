"""One side of the pipeline's benchmark: a Spark session that does the tasks of :mod:`pipeline_sides`.

    python pipeline_worker.py headrace|apache FOLDER JARS

The program runs under Spark 4.0.0 and under our version, so it imports Spark only; our modules are imported on our side
only. Both sessions have the same settings. The two sides differ in the format, and in the views
(:mod:`pipeline_views`, :mod:`pipeline_join`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pipeline_join
import pipeline_views
from pipeline_views import Answer, timed

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession

KEYS = 10_000
QUERY = ("count(*) AS records", "sum(length(value)) AS value_bytes", "count(DISTINCT key) AS keys")
_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",  # as many as there are cores; Spark's 200 would be all that is measured
}


class Worker:
    def __init__(self, side: str, folder: Path, jars: str) -> None:
        self.side, self.folder = side, folder
        self._following: pipeline_views.Following | None = None
        builder = SparkSession.builder.master("local[*]").appName(f"bench {side}").config(map=_CONF)
        if jars:
            builder = builder.config("spark.jars", jars)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self.format = "kafka"
        if side == "headrace":
            from headrace.pipeline import register

            register(self.spark)
            self.format = "headrace"

    @property
    def loads(self) -> dict[str, Callable[..., Answer]]:
        return {
            "batch": self.batch,
            "stream": self.stream,
            "write": self.write,
            "replay": partial(pipeline_views.replay, self),
            "join": partial(pipeline_join.join, self),
            "follow": self.follow,
            "unfollow": self.unfollow,
        }

    def batch(self, address: str, topic: str, columns: str = "") -> Answer:
        """The query over all that the topic has."""
        with timed() as took:
            reader = self.spark.read.format(self.format).options(**{"kafka.bootstrap.servers": address})
            if columns:
                reader = reader.schema(columns)
            row = reader.option("subscribe", topic).load().selectExpr(*QUERY).first()
        assert row is not None
        return {**took, **row.asDict()}

    def stream(self, address: str, topic: str) -> Answer:
        """The same as a stream that ends where the topic does: one micro-batch, as nothing bounds it."""
        found: list[Answer] = []

        def keep(batch: DataFrame, _number: int) -> None:
            row = batch.selectExpr(*QUERY).first()
            assert row is not None
            found.append(row.asDict())

        with timed() as took, tempfile.TemporaryDirectory(dir=self.folder) as checkpoint:
            records = self.stream_of(address, topic)
            writer = records.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination()
        (answer,) = found
        return {**took, **answer}

    def stream_of(self, address: str, topic: str) -> DataFrame:
        reader = self.spark.readStream.format(self.format).options(**{"kafka.bootstrap.servers": address})
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def write(self, address: str, topic: str, rows: int) -> Answer:
        """Rows that Spark makes up as it goes."""
        made = self.spark.range(0, rows, 1, 4).selectExpr(
            f"string(id % {KEYS}) AS key", "rpad(string(id), 100, 'x') AS value"
        )
        with timed() as took:
            writer = made.write.format(self.format).options(**{"kafka.bootstrap.servers": address, "topic": topic})
            writer.mode("append").save()
        return {**took, "records": rows}

    def follow(self, address: str, topic: str) -> Answer:
        """Has a view run until :meth:`unfollow`."""
        self._following = pipeline_views.follow(self, address, topic)
        return {"database": str(self._following.database), "query": self._following.query}

    def unfollow(self) -> Answer:
        assert self._following is not None
        self._following.stop()
        self._following = None
        return {}


def main() -> None:
    side, folder, jars = sys.argv[1:]
    worker = Worker(side, Path(folder), jars)
    loads = worker.loads
    for line in sys.stdin:
        wanted = json.loads(line)
        print("answer", json.dumps(loads[wanted.pop("load")](**wanted)), flush=True)
    worker.spark.stop()


if __name__ == "__main__":
    main()
