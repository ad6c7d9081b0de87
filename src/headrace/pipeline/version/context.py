"""The context in which versions run: the objects that all versions of a project share."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from headrace.pipeline.common_cut.common_cut import CommonCut, Member, SoloFollower
from headrace.pipeline.common_cut.eligibility import why_outside
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog import Catalog, VersionKey
from headrace.pipeline.serving.database import Database
from headrace.pipeline.spark.session import is_local
from headrace.pipeline.spark.worker_login import WorkerLogin, has_login
from headrace.pipeline.version.cpu_budget import CpuBudget
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.pipeline.version.shared_log import SharedLogs
from headrace.pipeline.version.work_in_flight import Work, WorkInFlight
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.archive.archive import Archive
    from headrace.pipeline.project.definition import ViewDefinition


@dataclass(frozen=True)
class RunContext:
    """The objects that every running version of a project gets.

    :param checkpoints: the folder for Spark's checkpoints: an absolute path, or a URL of a file system that Spark
        supports.
    """

    spark: SparkSession
    project: Project
    database: Database
    catalog: Catalog
    clock: Clock
    checkpoints: str
    metrics: PipelineMetrics
    budget: CpuBudget = field(default_factory=CpuBudget)
    shared_logs: SharedLogs = field(default_factory=SharedLogs)
    common_cut: CommonCut = field(default_factory=CommonCut)

    def follow(self, key: VersionKey, definition: ViewDefinition, work: WorkInFlight) -> AbstractContextManager[Member]:
        """How a version follows the log: in rounds with others, or alone."""
        if why_outside("", definition.trigger_ms, same_offsets=self.project.same_offsets) is not None:
            return nullcontext(SoloFollower(self.database))
        waiting = partial(work.waiting, Work.SPEED)
        return self.common_cut.member(self.database, self.clock, key, definition.reads, waiting)

    @property
    def log_options(self) -> dict[str, str]:
        """The options with which ``format("headrace")`` reaches the project's log."""
        return log_options(self.project, self.spark)

    @property
    def client_options(self) -> dict[str, str]:
        """The options with which Headrace's clients reach the project's log, by Kafka's names."""
        return {**self.project.log_options, "bootstrap.servers": self.project.bootstrap}

    @cached_property
    def archive(self) -> Archive:
        """The archive of the project, which all of its views share. It is opened on first use."""
        from headrace.pipeline.archive.archive import Archive

        return Archive(self.spark, self.project.archive_path, self.log_options)


def log_options(project: Project, spark: SparkSession) -> dict[str, str]:
    """The options with which ``format("headrace")`` reaches the log of a project."""
    options = {f"kafka.{name}": value for name, value in project.log_options.items()}
    options["kafka.bootstrap.servers"] = project.bootstrap
    if has_login(project.log_options):
        options["workerLogin"] = project.worker_login or _default_worker_login(spark)
    return options


def _default_worker_login(spark: SparkSession) -> WorkerLogin:
    """Tasks in the process of the driver may have its password, because they run on its host and as its user."""
    return WorkerLogin.ANY if is_local(spark.sparkContext.master or "") else WorkerLogin.TOKEN
