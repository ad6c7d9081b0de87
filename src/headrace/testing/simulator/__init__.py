"""Runs a cluster of the real broker code in one process, in simulated time, with faults drawn from a seed.

``python -m headrace.testing.simulator SEED`` replays a seed. ``simulation.py`` is one run: ``cluster.py`` starts
brokers on a simulated loop, network, disk and znode tree; ``clients.py`` writes and reads; ``faults.py`` breaks things;
``checker.py`` compares the result with what the clients were promised.
"""
