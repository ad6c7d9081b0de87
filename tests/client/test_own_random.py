"""Clients leave the global random generator alone, so that a user's seed and Hypothesis keep their meaning."""

import os
import random

from headrace import Broker, Producer
from headrace.client import own_random


def test_clients_do_not_move_the_global_generator():
    with Broker() as broker:
        before = random.getstate()
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            sent = [producer.send("orders", b"%d" % number) for number in range(100)]
            assert sorted(each.result(10).offset for each in sent) == list(range(100))
        assert random.getstate() == before


def test_a_child_process_draws_other_numbers():
    reader, writer = os.pipe()
    state = own_random.getstate()
    if (child := os.fork()) == 0:
        os.write(writer, repr(own_random.random()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    drawn = float(os.read(reader, 100))
    os.close(reader)
    os.close(writer)
    own_random.setstate(state)
    assert drawn != own_random.random()
