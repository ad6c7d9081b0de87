"""Decides, without I/O, which znodes the controller writes, and which requests the controller sends to brokers.

``cluster_changes.py`` is the entry: one function per change in the cluster. Each function yields effects
(``effects.py``). The shell around this package performs the effects.
"""
