"""The registry of settings: rows (``table_*``), what a row is (``keys``, ``checks``), and what is derived from them.

``headrace.broker.configs.broker_config`` is the door to all of it.
"""
