"""A project with a Lambda view and a Kappa view, and ``headrace views run`` as a process of its own.

The Spark driver is two processes, Python and a JVM. The runner leads a process group, so that no process outlives a
test.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.queries.query import Answer, QueryService

TOPIC = "clicks"
LAMBDA, KAPPA = "pages", "visitors"
VIEWS = (LAMBDA, KAPPA)
#: What each view's rows are one of.
COLUMNS = {LAMBDA: "page", KAPPA: "visitor"}
PATIENCE_S = 300.0

_COMMAND = (sys.executable, "-c", "from headrace.tools.main import main; main()")
_PROJECT = """\
[log]
bootstrap = "{bootstrap}"
options = {{ {log_options} }}

[serving]
url = "{url}"

[spark]
master = "{master}"
conf = {{ {conf} }}
memory = "{memory}"
"""
_VIEW = """\
topics = ["{topic}"]
architecture = "{architecture}"
query = "{name}.sql"

[decode]
format = "json"
schema = "visitor STRING, page STRING, ms BIGINT"
"""
_LAMBDA = """
[lambda]
batch_every = "{batch_every}"
"""
_SQL = (
    "SELECT {column}, count(*) AS clicks, sum(ms) AS total_ms, max(ms) AS slowest{more} FROM events GROUP BY {column}"
)
_MORE = ", min(ms) AS quickest"
_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Over before the second compiler has paid off, and it takes one of two cores.
    # The code cache is then only 48 MiB, and Java stops compiling when it is full.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=200m -XX:+UseSerialGC",
}


def wait_until(condition: Callable[[], bool], what: Callable[[], str], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"not in {patience_s:.0f} s: {what()}"
        time.sleep(0.02)


def _as_toml(settings: dict[str, str]) -> str:
    """For an inline table."""
    return ", ".join(f'"{name}" = "{value}"' for name, value in settings.items())


class ViewsProject:
    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        *,
        url: str = "sqlite:///views.db",
        master: str = "local[2]",
        batch_every: str = "5 seconds",
        conf: dict[str, str] | None = None,
        log_options: dict[str, str] | None = None,
        memory: str = "1g",
    ) -> None:
        self.folder = folder
        (folder / "views").mkdir(parents=True)
        text = _PROJECT.format(
            bootstrap=bootstrap,
            log_options=_as_toml(log_options or {}),
            url=url,
            master=master,
            conf=_as_toml({**_CONF, **(conf or {})}),
            memory=memory,
        )
        (folder / "headrace.toml").write_text(text)
        for name, architecture in ((LAMBDA, "lambda"), (KAPPA, "kappa")):
            view = _VIEW.format(topic=TOPIC, architecture=architecture, name=name)
            more = _LAMBDA.format(batch_every=batch_every) if architecture == "lambda" else ""
            (folder / "views" / f"{name}.toml").write_text(view + more)
            self._write_query(name)
        #: The views that must serve; ``shop`` adds to them.
        self.views: tuple[str, ...] = VIEWS
        self._url = url if "postgresql" in url else f"sqlite:///{folder / 'views.db'}"
        self._reader: QueryService | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def _write_query(self, name: str, more: str = "") -> None:
        (self.folder / "views" / f"{name}.sql").write_text(_SQL.format(column=COLUMNS[name], more=more))

    def change_the_kappa_query(self) -> None:
        """With one column more; applied by the caller."""
        self._write_query(KAPPA, _MORE)

    # -- commands

    def command(self, *arguments: str) -> str:
        ran = subprocess.run(
            [*_COMMAND, *arguments, "--project", str(self.folder)], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert ran.returncode == 0, f"{arguments}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def apply(self) -> None:
        self.command("views", "apply")

    # -- the runner

    @property
    def process(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)

    @property
    def jvm(self) -> psutil.Process | None:
        """The driver's; None if it is not there yet."""
        try:
            return next((one for one in self.process.children() if one.name() == "java"), None)
        except psutil.NoSuchProcess:
            return None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *arguments: str) -> None:
        with (self.folder / "views.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_COMMAND, "views", "run", "--project", str(self.folder), *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            )  # fmt: skip

    def signal_all(self, number: signal.Signals) -> None:
        """To Python, the JVM, and the JVM's Python workers."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Everything at once, as when the machine goes away."""
        self.signal_all(signal.SIGKILL)
        self.ends()

    def terminate(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self.ends()

    def ends(self) -> int:
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._process is not None:
            # The leader may be gone and its JVM still there.
            with suppress(ProcessLookupError):
                self.signal_all(signal.SIGKILL)
            self._process.wait()

    def log(self, lines: int = 60) -> str:
        return "\n".join((self.folder / "views.log").read_text(errors="replace").splitlines()[-lines:])

    # -- what readers see

    @property
    def reader(self) -> QueryService:
        if self._reader is None:
            self._reader = QueryService(self._url)
        return self._reader

    def ask(self, view: str) -> Answer:
        return self.reader.query(f"SELECT * FROM {view}", limit=100_000)

    def serving(self, view: str) -> int | None:
        """Which version; None as long as there is none, or nobody to ask."""
        try:
            rows = self.reader.query(f"SELECT serving_version FROM headrace_views WHERE name = '{view}'").rows
        except ServingError:
            return None
        return rows[0][0] if rows else None

    def states(self, view: str) -> dict[int, tuple[str, str | None]]:
        """Of each version: its state, and why it failed."""
        sql = f"SELECT version, state, error FROM headrace_versions WHERE view = '{view}'"
        return {version: (state, error) for version, state, error in self.reader.query(sql).rows}

    def counted(self, view: str) -> int:
        """How many records the serving version has read; 0 as long as nobody can be asked."""
        try:
            answer = self.reader.query(f"SELECT 1 FROM {view} LIMIT 1")
        except ServingError:
            return 0
        return sum(sum(ends.values()) for ends in answer.as_of[0].offsets.values()) if answer.as_of else 0

    def waits_until(self, condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        def complaint() -> str:
            states = {view: self.states(view) for view in self.views}
            return f"{what}; {states}\n{self.log()}"

        def checked() -> bool:
            assert self.is_running, f"the runner ended with {self.ends()}: {self.log()}"
            return condition()

        wait_until(checked, complaint, patience_s)

    def serves(self) -> None:
        """Waits until all views have an answer."""
        for view in self.views:
            self.waits_until(lambda view=view: self.serving(view) is not None, f"{view} does not serve")
