"""Samples the cluster, so that pages can show rates and the last hours.

``sampler.py`` asks the cluster every few seconds, ``store.py`` keeps the samples in a bounded SQLite file,
``series.py`` makes the lines of charts of them, and ``charts.py`` draws a line as SVG on the server.
"""
