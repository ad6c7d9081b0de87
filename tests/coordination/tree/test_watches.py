"""The tables of watches."""

import time

from headrace.coordination.interface import EventType
from headrace.coordination.tree.watches import Watches, WatchMode


def ignore(_event):
    pass


def drop_seconds(watches):
    started = time.process_time()
    for session_id in range(1_000, 1_500):
        watches.drop_session(session_id)
    return time.process_time() - started


def test_the_end_of_a_session_does_not_search_the_watches_of_others():
    """Every end of a session, and every lost connection, took a step per watch of the whole tree."""
    watches = Watches()
    for number in range(20_000):
        watches.add_data(1, f"/a/{number}", ignore)
    assert drop_seconds(watches) < 0.2, "beside 20,000 watches, 100 sessions took 2.2 s"
    assert len(watches) == 20_000


def test_a_session_leaves_nothing_behind_whatever_has_happened_to_its_watches():
    watches = Watches()
    watches.add_data(1, "/a", ignore)
    watches.add_children(1, "/a", ignore)
    watches.add_persistent(1, "/a", ignore)
    watches.add_recursive(1, "/b", ignore)
    watches.add_data(2, "/a", ignore)
    assert watches.session_ids == {1, 2}
    assert [delivery.session_id for delivery in watches.on_changed("/a", ())] == [1, 2]
    assert watches.session_ids == {1}, "the watch of session 2 has fired"
    assert [delivery.event.type for delivery in watches.on_changed("/b/c", ())] == [EventType.CHANGED]
    watches.remove_data(1, "/a", ignore, WatchMode.PERSISTENT)
    assert watches.data_modes(1, "/a", ignore) == WatchMode(0)
    assert len(watches) == 2, "one on the children of /a, and the recursive one"
    watches.drop_session(1)
    watches.drop_session(1)
    assert (len(watches), watches.session_ids, watches.paths) == (0, set(), set())
    assert watches.on_changed("/b/c", ()) == []
