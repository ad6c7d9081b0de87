"""Runs a broker, a stream of clicks, a Lambda and a Kappa view, and a reader that reads the views all the time.

The points at which a process is killed come from a seed, which is printed. ``HEADRACE_SEED`` repeats a seed, as far as
processes that run in parallel do the same twice. ``HEADRACE_SOAK`` is the number of kills.
"""

import os
import random
import threading
from pathlib import Path

from clicks_truth import Clicks, Watcher, check_everything, make_topic
from lasting_server import Server
from views_process import VIEWS, ViewsProject

IS_SOAK = "HEADRACE_SOAK" in os.environ
KILLS = int(os.environ.get("HEADRACE_SOAK", "1"))
#: For a test with so many kills, with all the patience that it has at each.
TIMEOUT_S = 600 + 60 * KILLS
_SEED = int(os.environ.get("HEADRACE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
_HISTORY = 6000
_MOST_BETWEEN_KILLS = 1500


class ViewsHarness:
    def __init__(
        self,
        folder: Path,
        *,
        url: str = "sqlite:///views.db",
        master: str = "local[2]",
        conf: dict[str, str] | None = None,
    ) -> None:
        print(f"HEADRACE_SEED={_SEED}")  # noqa: T201  shown if the test fails
        self.pick = random.Random(_SEED)
        self.server = Server(folder / "broker")
        make_topic(self.server.address)
        self.clicks = Clicks(self.server.address, random.Random(_SEED + 1))
        self.project = ViewsProject(folder / "project", self.server.address, url=url, master=master, conf=conf)
        self.watcher = Watcher(self.project)

    def begins(self) -> None:
        """Views serve, clicks come in."""
        self.clicks.write(_HISTORY)
        self.project.apply()
        self.project.start()
        self.clicks.start()
        self.project.serves()
        self.watcher.start()

    def comes_to_a_random_point(self) -> None:
        """Some view, of those that the last fault did not stop for good, has gone on by some clicks and a bit."""
        for view in self.pick.sample(VIEWS, 2):
            goal = self.project.counted(view) + self.pick.randrange(1, _MOST_BETWEEN_KILLS)
            self.project.waits_until(
                lambda view=view, goal=goal: self.project.counted(view) >= goal, f"{view} does not go on"
            )
        self.hesitates(0.5)

    def hesitates(self, at_most_s: float) -> None:
        threading.Event().wait(self.pick.random() * at_most_s)

    def ends_well(self) -> None:
        """Both views are what the topic says, and so was everything that readers were told meanwhile."""
        self.clicks.stop()
        check_everything(self.project, self.server.address, self.watcher)
        self.watcher.stop()
        assert self.project.terminate() == 0, self.project.log()

    def close(self) -> None:
        self.watcher.stop()
        self.project.close()
        self.clicks.close()
        self.server.close()
