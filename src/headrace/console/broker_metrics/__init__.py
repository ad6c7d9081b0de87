"""Reads metrics of the brokers: from a Prometheus, or from the metrics endpoints of the brokers themselves.

``fetching.py`` sends one bounded request, ``endpoints.py`` and ``prometheus.py`` ask for the series, ``measured.py``
makes numbers of series, and ``source.py`` chooses between the two. Only addresses of the command line are asked.
"""
