"""Runs a broker, streams of clicks and of orders, views of them, and readers that read the views all the time.

The views of clicks combine partial results. Those of a shop (``shop``) join, are kept by touched keys, and read a table
and changes of a database. In a soak there is each of them as a Lambda view and as a Kappa view.

The points at which a process is killed come from a seed, which is printed. ``HEADRACE_SEED`` repeats a seed, as far as
processes that run in parallel do the same twice. ``HEADRACE_SOAK`` is the number of kills.
"""

import os
import random
import threading
import time
from pathlib import Path

from clicks_truth import Clicks, Sample, Watcher, check_everything, make_topic
from lasting_server import Server
from shop import Orders, Shop, ShopSample
from views_process import PATIENCE_S, VIEWS, ViewsProject

IS_SOAK = "HEADRACE_SOAK" in os.environ
KILLS = int(os.environ.get("HEADRACE_SOAK", "1"))
#: The time for a test with this many kills: each kill may need its whole timeout.
TIMEOUT_S = 600 + 60 * KILLS
SEED = int(os.environ.get("HEADRACE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
_HISTORY = 6000
_MOST_BETWEEN_KILLS = 1500
#: Of a view of the shop, whose records are fewer.
_MOST_OF_SHOP = 60
#: The number of commits of both views, one after the other.
_EQUAL_CUTS = 5


class ViewsHarness:
    def __init__(
        self,
        folder: Path,
        *,
        url: str = "sqlite:///views.db",
        master: str = "local[2]",
        conf: dict[str, str] | None = None,
    ) -> None:
        print(f"HEADRACE_SEED={SEED}")  # noqa: T201  shown if the test fails
        self.pick = random.Random(SEED)
        self.server = Server(folder / "broker")
        make_topic(self.server.address)
        self.clicks = Clicks(self.server.address, random.Random(SEED + 1))
        self.project = ViewsProject(folder / "project", self.server.address, url=url, master=master, conf=conf)
        self.shop = Shop(self.server.address, self.project, is_short=not IS_SOAK)
        self.orders = Orders(self.server.address, random.Random(SEED + 2))
        clicks, shop = Watcher(self.project, VIEWS, Sample.of), Watcher(self.project, self.shop.views, ShopSample.of)
        self.watchers = clicks, shop

    def begins(self, *, reader_may_fail: bool = False) -> None:
        """Views serve, clicks and orders come in.

        :param reader_may_fail: whether the database is killed as well.
        """
        self.clicks.write(_HISTORY)
        self.orders.write(_HISTORY // 20)
        self.project.apply()
        self.project.start()
        self.clicks.start()
        self.orders.start()
        self.project.serves()
        for watcher in self.watchers:
            watcher.may_fail = reader_may_fail
            watcher.start()

    def comes_to_a_random_point(self) -> None:
        """Some view, of those that the last fault did not stop for good, has gone on by some clicks and a bit."""
        for view in (self.pick.choice(VIEWS), self.pick.choice(self.shop.views)):
            most = _MOST_BETWEEN_KILLS if view in VIEWS else _MOST_OF_SHOP
            goal = self.project.counted(view) + self.pick.randrange(1, most)
            self.project.waits_until(
                lambda view=view, goal=goal: self.project.counted(view) >= goal, f"{view} does not go on"
            )
        self.hesitates(0.5)

    def hesitates(self, at_most_s: float) -> None:
        threading.Event().wait(self.pick.random() * at_most_s)

    def sees_equal_offsets(self) -> None:
        """For a while, each statement that reads both views of clicks sees them at the same offsets, and they go on."""
        began_s = time.monotonic()
        cuts: set[str] = set()
        while len(cuts) < _EQUAL_CUTS:
            assert time.monotonic() - began_s < PATIENCE_S, f"{VIEWS} are seldom at the same offsets: {cuts}"
            answer = self.project.reader.query(f"SELECT count(*) FROM {VIEWS[0]} CROSS JOIN {VIEWS[1]}")
            first, second = (each.offsets for each in answer.as_of)
            cuts = cuts | {str(first)} if first == second else set()

    def ends_well(self) -> None:
        """All views are what the topics say, and so was everything that readers were told meanwhile."""
        self.clicks.stop()
        self.orders.stop()
        clicks, shop = self.watchers
        check_everything(self.project, self.server.address, clicks)
        self.shop.check(shop)
        for watcher in self.watchers:
            watcher.stop()
        assert self.project.terminate() == 0, self.project.log()

    def close(self) -> None:
        for watcher in self.watchers:
            watcher.stop()
        self.project.close()
        self.clicks.close()
        self.orders.close()
        self.server.close()
