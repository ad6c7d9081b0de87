"""Pushes a client's metrics to brokers that ask for them (KIP-714).

``reporter.py`` decides what to send and when, without I/O. ``subscription.py`` has what a broker asks for.
``points.py`` turns metrics into data points with the names of KIP-714, ``labels.py`` describes the client, and
``otlp.py`` encodes both. ``telemetry.py`` sends the requests.
"""
