"""The metrics of the clients, under the names of Kafka's Java clients.

``sensor.py`` counts. ``table.py`` is THE table of metrics: which metric reads which sensor. ``registry.py`` holds the
sensors of one client and reads them. ``connections.py`` has the sensors of connections. The sensors of producers,
consumers and groups are beside the code that they measure (``producer/producer_metrics.py``, ...).

A sensor is called once per request, batch or poll, and never per record. All names are made when somebody reads the
metrics.
"""
