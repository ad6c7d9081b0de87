"""The settings of a project: the file ``headrace.toml`` in the project's folder.

::

    [log]      bootstrap, options, worker_login         where the log is; options of Headrace's consumer
    [serving]  url, executors_from, same_offsets        the serving database, and what readers see in it
    [archive]  path                                     the archive of Lambda views
    [spark]    master, memory, conf, checkpoints,       the Spark session
               class_archive

Options and url may refer to secrets in the environment or in files (``secret_references.py``).

``read_settings`` does not need Spark and does not read the files of views.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.client.config import ConsumerConfig
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.project.toml_files import Problem, ProjectError, Section, TomlFile
from headrace.pipeline.secret_references import MissingSecret, with_secrets
from headrace.pipeline.serving.database_url import DEFAULT_SERVING_URL, PROJECT_FILE, parse_url
from headrace.pipeline.serving.errors import ServingError

_WORKER_LOGINS = ("token", "any", "password")
#: From here on, the work of the driver takes longer than starting tasks that write.
EXECUTORS_FROM = 100_000
_SECTIONS = ("log", "serving", "archive", "spark")
TIME_ZONE = "spark.sql.session.timeZone"
_UTC = {"UTC", "Etc/UTC", "Z", "+00:00", "GMT"}
#: A size as Java reads it in ``-Xmx`` and Spark in ``spark.driver.memory``.
_HEAP_SIZE = re.compile(r"[1-9]\d*[kmgt]b?", re.IGNORECASE)


@dataclass(frozen=True)
class Project:
    """
    :param serving_url: with an absolute path of the file, or with the password.
    :param archive_path: an absolute path, or a URL of a file system that Spark supports; so is ``checkpoints``.
    :param spark_memory: the heap of Spark's Java process, ``4g``; empty to choose it by the memory of this machine.
    :param spark_class_archive: whether Java starts from an archive of classes, and `headrace views run` records one.
    :param log_options: options of Headrace's clients, by Kafka's names. Some are secrets.
    :param serving_executors_from: a micro-batch of at least this many records is written to PostgreSQL by Spark's
        executors; 0 if the driver writes all.
    :param same_offsets: whether readers see views with common topics at the same offsets.
    :param worker_login: how Spark's workers log in to the log: token, any or password; empty for the default.
    """

    folder: Path
    bootstrap: str
    serving_url: str = field(repr=False)
    archive_path: str
    spark_master: str
    checkpoints: str = ""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    log_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    views: Mapping[str, ViewDefinition] = field(default_factory=dict)
    sources: Mapping[str, SourceDefinition] = field(default_factory=dict)
    spark_memory: str = ""
    spark_class_archive: bool = True
    worker_login: str = ""
    serving_executors_from: int = EXECUTORS_FROM
    same_offsets: bool = True


def read_settings(folder: str | Path) -> tuple[Path, TomlFile, Project]:
    folder = Path(folder).absolute()
    file = folder / PROJECT_FILE
    if not file.exists():
        missing = f"there is no {PROJECT_FILE} here: 'headrace views init' creates an example project"
        raise ProjectError([Problem(folder, None, missing)])
    settings = TomlFile.read(file)
    if settings.problems:  # the file cannot be read, so all settings are unknown
        settings.invalid_fields.update(_SECTIONS)
    return folder, settings, _settings(folder, settings)


def _settings(folder: Path, file: TomlFile) -> Project:
    log, serving, archive, spark = (file.section(name) for name in _SECTIONS)
    bootstrap = log.text("bootstrap", "127.0.0.1:9092")
    project = Project(
        folder=folder,
        bootstrap=bootstrap,
        log_options=_log_options(folder, log, bootstrap),
        serving_url=_serving_url(folder, serving),
        archive_path=_absolute(folder, archive.text("path", "archive")),
        spark_master=spark.text("master", "local[*]"),
        checkpoints=_absolute(folder, spark.text("checkpoints", ".headrace/checkpoints")),
        spark_conf=_spark_conf(spark),
        spark_memory=_spark_memory(spark),
        spark_class_archive=spark.flag("class_archive", default=True),
        worker_login=_worker_login(log),
        serving_executors_from=serving.whole("executors_from", EXECUTORS_FROM),
        same_offsets=serving.flag("same_offsets", default=True),
    )
    for section in (log, serving, archive, spark):
        section.finish()
    file.section().finish(*_SECTIONS)
    return project


def _spark_memory(spark: Section) -> str:
    memory = spark.text("memory")
    if memory and not _HEAP_SIZE.fullmatch(memory):
        spark.report("memory", f'spark.memory must be a size such as "4g" or "1500m", not {memory!r}')
    return memory


def _spark_conf(spark: Section) -> dict[str, str]:
    conf = spark.mapping("conf")
    zone = conf.get(TIME_ZONE, "UTC")
    if zone not in _UTC:
        message = (
            f"spark.conf: {TIME_ZONE} cannot be {zone!r}: views compute in UTC; name the zone in the query, "
            f"as in date_trunc('DAY', from_utc_timestamp(at, '{zone}'))"
        )
        spark.report("conf", message)
    return conf


def _worker_login(log: Section) -> str:
    login = log.text("worker_login")
    if login and login not in _WORKER_LOGINS:
        log.report("worker_login", f"log.worker_login must be one of {', '.join(_WORKER_LOGINS)}, not {login!r}")
    return login


def _log_options(folder: Path, log: Section, bootstrap: str) -> dict[str, str]:
    """The options of the consumer. Other clients get those that all kinds of clients have."""
    options: dict[str, str] = {}
    for name, value in log.mapping("options").items():
        try:
            options[name] = with_secrets(value, folder, os.environ)
        except MissingSecret as error:
            log.report("options", f"log.options: {name}: {error}")
            return {}
    try:
        ConsumerConfig.load({**options, "bootstrap.servers": bootstrap})
    except (TypeError, ValueError) as error:
        log.report("options", f"log.options: {error}")
    return options


def _serving_url(folder: Path, serving: Section) -> str:
    url = serving.text("url", DEFAULT_SERVING_URL)
    try:
        return parse_url(with_secrets(url, folder, os.environ), folder).render_as_string(hide_password=False)
    except (ServingError, MissingSecret) as error:
        serving.report("url", str(error))
        return ""


def _absolute(folder: Path, path: str) -> str:
    return path if "://" in path else str(folder / path)
