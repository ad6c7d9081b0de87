"""What the controller decides, without I/O: which znodes to write, and which requests to send to brokers.

``cluster_changes.py`` is the entry: one function per change in the cluster. Each function yields effects
(``effects.py``). The shell around this package performs the effects.
"""
