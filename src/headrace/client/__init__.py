"""The clients: producer, consumer and admin, for Headrace and for Apache Kafka.

From the lowest layer up:

- ``types``, ``errors``, ``retry``, ``notifier``, ``offset_reset``, ``encoded_batch``: values without I/O.
- ``config``: the options. ``security``: TLS and SASL. ``partitioners``: the choice of a record's partition.
- ``metrics``: what clients count. ``throttle``: the pauses that brokers ask for.
- ``connection``: one socket. ``metadata``: what is known about a cluster. ``pool``, ``coordinators`` and ``cluster``:
  requests to the right broker, which are sent again if they fail.
- ``telemetry``: metrics pushed to brokers. ``kernels`` and ``arrow``: whole tables. ``membership``: consumer groups.
  ``transactions``: the producer's side.
- ``producer`` and ``consumer``, for asyncio and for threads. ``background`` runs the blocking ones (``sync_*``).
- ``admin``, and ``mirror``, which uses all of them.

The clients import ``protocol`` and ``runtime``, and nothing of the broker.
"""
